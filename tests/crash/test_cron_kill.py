"""Cron tasks whose process is killed, and two processes that want the same file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from taskmill import Schedule, Scheduler
from tests.warm_python import Popen

pytestmark = pytest.mark.timeout(120)

SOURCE = str(Path(__file__).parents[2] / "src")
ENVIRONMENT = {**os.environ, "PYTHONPATH": SOURCE, "TZ": "UTC"}
NOT_SO_LATE = 45
"""Seconds of a minute in which a first start is certain to be in that minute."""


def victim(file: Path, expression: str, seconds: float) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    return child("tests.crash.cron_victim", file, expression, seconds)


@contextlib.contextmanager
def child(module: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    process = Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def said(process: subprocess.Popen[str], count: int) -> set[str]:
    """Return the next lines of the process, in any order."""
    assert process.stdout is not None
    return {process.stdout.readline().strip() for _ in range(count)}


def this_minute_alone() -> str:
    """Return an expression that matches the current minute, and no other within a year."""
    if (late := time.time() % 60) > NOT_SO_LATE:
        time.sleep(60.5 - late)
    utc = time.gmtime()
    return f"{utc.tm_min} {utc.tm_hour} {utc.tm_mday} {utc.tm_mon} *"


def schedule_of(file: Path) -> Schedule:
    async def look() -> Schedule:
        async with Scheduler(file, retention=None) as scheduler:
            (schedule,) = (await scheduler.snapshot()).schedules
            return schedule

    return asyncio.run(look())


def test_a_task_whose_process_is_killed_starts_again_at_once_until_it_is_quarantined(tmp_path: Path) -> None:
    file, expression = tmp_path / "t.db", this_minute_alone()
    for _ in range(3):
        with victim(file, expression, 1000) as process:
            assert said(process, 2) == {"initialized", "start"}
    with victim(file, expression, 1000) as process:
        assert said(process, 1) == {"initialized"}
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0, "no task runs that the stop would wait for"
    schedule = schedule_of(file)
    assert (schedule.last_outcome, schedule.task_id, schedule.runs) == ("quarantined", None, 1)


def test_a_run_that_was_killed_succeeds_once_and_no_more(tmp_path: Path) -> None:
    file, expression = tmp_path / "t.db", this_minute_alone()
    with victim(file, expression, 1000) as process:
        assert said(process, 2) == {"initialized", "start"}
    with victim(file, expression, 0) as process:
        assert said(process, 3) == {"initialized", "start", "end"}
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0
    with victim(file, expression, 0) as process:
        assert said(process, 1) == {"initialized"}
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0
        assert said(process, 1) == {""}, "nothing more was printed"
    assert (schedule_of(file).last_outcome, schedule_of(file).runs) == ("succeeded", 1)


def test_a_second_process_on_the_file_is_refused_and_takes_over_when_the_first_is_gone(tmp_path: Path) -> None:
    file, expression = tmp_path / "t.db", this_minute_alone()
    with victim(file, expression, 1000) as first:
        assert said(first, 2) == {"initialized", "start"}
        with victim(file, expression, 1000) as second:
            assert said(second, 1) == {"AlreadyRunning"}
            assert second.wait(30) == 0
    with victim(file, expression, 1000) as third:
        assert said(third, 2) == {"initialized", "start"}


class Fact(NamedTuple):
    process: int
    at: int
    what: str
    of: int


def facts_of(journal: Path) -> list[Fact]:
    lines = journal.read_text().splitlines() if journal.exists() else []
    words = [line.split() for line in lines]
    facts = [Fact(int(process), int(at), what, int(of)) for process, at, what, of in words]
    return sorted(facts, key=lambda fact: fact.at)


def next_beginning(journal: Path, after: int) -> Fact:
    """Return the first run that begins after this instant; pytest's own timeout bounds the wait."""
    while True:
        for fact in facts_of(journal):
            if fact.what == "begin" and fact.at > after:
                return fact
        time.sleep(0.01)


def test_of_many_processes_on_a_file_one_runs_each_occurrence_also_when_that_one_is_killed(tmp_path: Path) -> None:
    file, journal, killed = tmp_path / "t.db", tmp_path / "journal", set[int]()
    with contextlib.ExitStack() as stack:
        rivals = {}

        def start_another() -> None:
            rival = stack.enter_context(child("tests.crash.cron_rival", file, journal))
            rivals[rival.pid] = rival

        for _ in range(3):
            start_another()
        for _ in range(4):
            victim = next_beginning(journal, time.monotonic_ns()).process
            rivals[victim].kill()
            rivals.pop(victim).wait()
            killed.add(victim)
            start_another()
        next_beginning(journal, next_beginning(journal, time.monotonic_ns()).at)
        for rival in rivals.values():
            assert rival.stdin is not None
            rival.stdin.close()
            assert rival.wait(30) == 0
    facts = facts_of(journal)
    fired = [fact.of for fact in facts if fact.what == "fired"]
    assert len(fired) == len(set(fired)), "no occurrence is fired twice"
    ended = [fact.of for fact in facts if fact.what == "end" and fact.process not in killed]
    assert len(ended) == len(set(ended)), "no run that has succeeded is repeated"
    at_work: dict[int, int] = {}
    for fact in facts:
        if fact.what == "begin":
            assert set(at_work) <= killed - {fact.process}, "no two runs at once"
            at_work[fact.process] = fact.of
        elif fact.what == "end":
            assert at_work.pop(fact.process) == fact.of
    assert len({fact.process for fact in facts if fact.what == "begin"}) > len(killed), "others have taken over"
    schedule = schedule_of(file)
    assert schedule.last_outcome == "succeeded"
    # The last of the processes may have fired the next occurrence just before it was asked to stop.
    assert schedule.task_id not in {fact.of for fact in facts if fact.what == "begin"}, "a run that began has ended"
