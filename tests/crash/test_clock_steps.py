"""Real processes whose wall clocks are stepped: no run is lost, late, early or doubled."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from tests.crash.clock_victim import LEASE
from tests.warm_python import Popen

ROOT = Path(__file__).parents[2]
EVERY = 0.3
DAY = 86_400.0
SLACK = 4.0
"""Seconds of delay on a busy machine. A step once caused hours."""
STEPS = (DAY, -DAY, -5 * 3600, 400 * DAY, 3.0, -400 * DAY, -3.0, 5 * 3600)


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return request.getfixturevalue("postgres_store") if request.param == "postgres" else str(tmp_path / "tasks.db")


class Victim:
    """A running :mod:`tests.crash.clock_victim`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.heard: list[dict[str, Any]] = []
        self._lines: Queue[str] = Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def order(self, **order: float) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def hear(self, what: str, patience: float = 60) -> dict[str, Any]:
        """Return the next run of this kind."""
        until = time.monotonic() + patience
        while (left := until - time.monotonic()) > 0:
            self.heard.append(json.loads(self._lines.get(timeout=left)))
            if self.heard[-1].get("ran") == what:
                return self.heard[-1]
        raise AssertionError(f"nothing was heard of {what} for {patience} s")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def victim(store: str, *, ahead: float = 0, every: float | None = EVERY) -> Iterator[Victim]:
    order = json.dumps({"store": store, "ahead": ahead, "every": every})
    process = Popen(
        [sys.executable, "-m", "tests.crash.clock_victim", order],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        started = Victim(process)
        started.hear("ready")
        yield started
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def test_a_series_keeps_its_pace_whatever_happens_to_the_wall_clock(store: str) -> None:
    with victim(store) as running:
        running.hear("tick")
        for step in STEPS:
            running.order(step=step)
            for _ in range(3):
                running.hear("tick", EVERY + SLACK)
    ticks = [line["at"] for line in running.heard if line.get("ran") == "tick"]
    lasted = ticks[-1] - ticks[0]
    assert max(after - before for before, after in pairwise(ticks)) < EVERY + SLACK
    assert len(ticks) <= lasted / EVERY + 2, "a burst"
    # Every beat was run, or skipped since the machine was busy.
    skipped = sum(line.get("skipped", 0) for line in running.heard)
    assert abs(lasted / EVERY + 1 - len(ticks) - skipped) <= 2


@pytest.mark.parametrize("step", [-DAY, -EVERY * 10, DAY])
def test_a_series_continues_at_once_after_a_kill_and_a_step_while_nothing_ran(store: str, step: float) -> None:
    with victim(store) as first:
        for _ in range(3):
            first.hear("tick")
        first.kill()
    with victim(store, ahead=step) as second:
        ready = second.heard[-1]["at"]
        for _ in range(3):
            second.hear("tick", 60)
    ticks = [line["at"] for line in second.heard if line.get("ran") == "tick"]
    # On PostgreSQL the tasks of a dead node return to the queue when its lease expires.
    assert ticks[0] - ready < EVERY + SLACK + (2 * LEASE if store.startswith("postgres") else 0)
    assert ticks[-1] - ticks[0] < 2 * EVERY + SLACK


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_delay_is_kept_that_is_asked_for_before_an_idle_dispatcher_has_noticed_the_step(
    store: str, step: float
) -> None:
    with victim(store, every=None) as idle:
        idle.order(submit=1.0, ttl=30.0)
        before = idle.hear("later", 1 + SLACK)
        idle.order(step=step)
        idle.order(submit=1.0, ttl=30.0)
        after = idle.hear("later", 1 + SLACK)
    for run in (before, after):
        assert 1.0 <= run["at"] - run["asked_at"] < 1 + SLACK
