"""Power cuts: whatever unsynced data a disk keeps, every guarantee holds.

Real processes are recorded, the recording is cut at many moments, and each possible disk is opened with
the real code. See docs/explanation/durability.md.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from taskmill.store.sqlite.connection import connect
from taskmill.store.sqlite.migrate import MIGRATIONS, NEWEST_VERSION, statements
from tests.crash.evidence import kept_when_it_fails, rounds_or
from tests.moving.everything import Book, filled, rows_of
from tests.power.judge import judge
from tests.power.mover import one_queue
from tests.power.trial import Figures, Judge, Trial, tried
from tests.power.workload import inherited

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the recorder is a library for LD_PRELOAD")

SHORT = 16
ROUNDS = rounds_or(0)
DISKS = max(SHORT, 4 * ROUNDS)
"""Number of disks for each scenario."""
CHOSEN = int(os.environ.get("TASKMILL_CRASH_SEED", "0"))
SEED = CHOSEN or (random.SystemRandom().randrange(1, 10**6) if ROUNDS else 1)
"""The short form makes the same random choices each time."""

WORKLOAD = "tests.power.workload"
SLOW_SYNC_US = 60_000
"""Longer than the interval at which a process polls for commits of others."""
RESULTS = 12
OLD_TASKS = 200


@pytest.fixture(scope="module")
def total() -> Iterator[Figures]:
    figures = Figures()
    yield figures
    if ROUNDS:
        print(f"\npower cuts, seed {SEED}: {figures}", file=sys.__stderr__)


@contextmanager
def kept_place(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder, in memory if possible; its content is kept if the test fails."""
    with kept_when_it_fails(tmp_path, SEED) as journal:
        yield journal.parent


def order(trial: Trial, who: str, seed: int, **more: Any) -> tuple[str, Any]:
    return WORKLOAD, {"file": str(trial.file), "who": who, "seed": seed * 100 + ord(who), **more}


def alone(trial: Trial, seed: int, **more: Any) -> Judge:
    """Record one process and then another, which continues with the files of the first."""
    trial.record([order(trial, "A", seed, **more)], [order(trial, "B", seed, **more)])
    return judge


def together(trial: Trial, seed: int) -> Judge:
    """Record three processes at once, one of which dispatches."""
    trial.record([order(trial, who, seed, deeds=20, dispatches=who == "A") for who in "ABC"])
    return judge


def failing_once(trial: Trial, seed: int) -> Judge:
    """Record a process in which one sync of the log fails: Linux then marks its pages clean."""
    trial.record([order(trial, "A", seed)], fail=f"-wal:{trial.chance.randint(3, 60)}")
    return judge


def moving(trial: Trial, seed: int) -> Judge:
    """Record a move of a queue with tasks of every kind."""
    target = trial.folder / "target.db"
    filled(trial.file, Book(trial.folder.with_name("filled")), seed, size=30)
    before = rows_of(trial.file)
    trial.record([("tests.power.mover", [str(trial.file), str(target)])])
    return one_queue(trial.file, target, before)


def migrating(trial: Trial, seed: int) -> Judge:
    """Record a process that opens a file of an older schema, with tasks in it."""
    write_old_file(trial.file, 1 + seed % (NEWEST_VERSION - 1))
    trial.record([order(trial, "A", seed, deeds=2, inherits=OLD_TASKS)])
    return judge


def write_old_file(file: Path, version: int) -> None:
    with closing(connect(str(file))) as connection:
        connection.execute("CREATE TABLE taskmill_schema (version INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT")
        for number, name, sql in MIGRATIONS:
            if number <= version:
                for statement in statements(sql):
                    connection.execute(statement)
                connection.execute("INSERT INTO taskmill_schema (version, name) VALUES (?, ?)", (number, name))
        connection.executemany(
            "INSERT INTO taskmill_task (type, group_name, priority, urgency, status, payload, created_at, queued_at)"
            " VALUES ('power::plain', '', 128, 128, 'pending', ?, 1, 1)",
            [(json.dumps({"marker": inherited(number)}),) for number in range(OLD_TASKS)],
        )


@pytest.mark.timeout(120 + 2 * DISKS)
@pytest.mark.parametrize(
    "scenario", [alone, together, failing_once, moving, migrating], ids=lambda scenario: scenario.__name__
)
def test_no_promise_is_broken_by_a_power_cut(
    scenario: Callable[[Trial, int], Judge], tmp_path: Path, total: Figures, capsys: pytest.CaptureFixture[str]
) -> None:
    with kept_place(tmp_path) as place:
        figures = tried(place, SEED, DISKS, scenario)
        total.add(figures)
        with capsys.disabled():
            print(f"\npower cuts, {scenario.__name__}: {figures}")
        assert figures.disks
        assert not figures.complaints, "\n".join(figures.complaints[:20])


def test_a_result_that_another_process_sees_is_on_the_disk(tmp_path: Path) -> None:
    """The disk is slow, so that the other process sees an ending before the dispatcher has synced it to the disk."""
    with kept_place(tmp_path) as place:
        trial = Trial(place, SEED)
        dispatcher, watcher = order(trial, "A", SEED, serves=RESULTS), order(trial, "B", SEED, watches=RESULTS)
        trial.record([dispatcher, watcher], delay_us=SLOW_SYNC_US)
        seen = trial.after(lambda note: note.get("how") == "awaited")
        assert len(seen) == RESULTS
        assert trial.judge_at(seen, lambda: ["lost"], judge).complaints == []


def test_without_syncs_the_judge_sees_losses_and_nothing_worse(tmp_path: Path) -> None:
    """The control: ``durability="process"`` does not survive a power cut, but leaves a state that once existed."""
    with kept_place(tmp_path) as place:
        figures = tried(place, SEED, SHORT, partial(alone, durability="process"))
        lost = [complaint for complaint in figures.complaints if "lost: " in complaint]
        assert len(lost) > SHORT
        assert [complaint for complaint in figures.complaints if "broken: " in complaint] == []
