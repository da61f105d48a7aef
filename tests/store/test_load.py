"""The counters of tasks in a store equal the number of rows, whatever has happened to the tasks."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from taskmill import Domain, Retry, Scheduler
from taskmill.moving import Step, move, undo
from taskmill.store.sqlite import migrate as sqlite_migrate
from taskmill.store.sqlite.migrate import migrate
from tests.moving.everything import Book, filled, rows_of, run_to_the_end

domain = Domain("d", retry=Retry.none())


@domain.task
async def fails(n: int) -> None:
    raise ValueError(n)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "tasks.db")
    address: str = request.getfixturevalue("postgres_store")
    return address


def kept(store: str | Path) -> dict[tuple[str, str, str], int]:
    return {(row["group_name"], row["type"], row["status"]): row["tasks"] for row in rows_of(store)["taskmill_load"]}


def counted(store: str | Path) -> dict[tuple[str, str, str], int]:
    rows = (row for row in rows_of(store)["taskmill_task"] if row["status"] != "running")
    return dict(Counter((row["group_name"], row["type"], row["status"]) for row in rows))


@pytest.mark.parametrize("seed", range(4))
def test_the_numbers_kept_are_those_of_the_rows(store: str, tmp_path: Path, seed: int) -> None:
    book = Book(tmp_path / "book")
    filled(store, book, seed)
    assert len({status for _, _, status in kept(store)}) > 3
    assert kept(store) == counted(store)
    asyncio.run(run_to_the_end(store, book))
    assert kept(store) == counted(store)


async def test_a_dead_letter_that_was_brought_back_is_counted_again(store: str) -> None:
    async with Scheduler(store, domains=[domain]) as scheduler:
        task = await fails.submit(1)
        await scheduler.run_until_idle()
        assert kept(store) == {}
        await scheduler.retry_dead(task.id)
        assert kept(store) == {("", "d::fails", "pending"): 1}


async def test_tasks_that_a_node_gives_back_when_it_stops_are_counted_again(store: str) -> None:
    begun = asyncio.Event()
    stuck = Domain("stuck")

    @stuck.task
    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with Scheduler(store, domains=[stuck], shutdown_grace=0) as scheduler:
        await scheduler.submit_many([waits.options(group=f"g{n}").prepare() for n in range(3)])
        async with scheduler.running():
            await begun.wait()
            assert kept(store) == counted(store)
        assert kept(store) == counted(store) == {(f"g{n}", "stuck::waits", "pending"): 1 for n in range(3)}


async def test_damaged_tasks_are_not_counted_once_they_are_set_aside(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    async with Scheduler(file, domains=[domain]) as scheduler:
        await scheduler.submit_many([fails.options(group="g").prepare(n) for n in range(3)])
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE taskmill_task SET payload = CAST(x'ff' AS TEXT) WHERE id = 2")
        connection.execute("UPDATE taskmill_task SET group_name = CAST(x'ff' AS TEXT) WHERE id = 3")
    connection.close()
    async with Scheduler(file, domains=[domain]) as scheduler:
        await scheduler.run_until_idle(timeout=10)
        counts = (await scheduler.snapshot()).counts
    assert (counts["pending"], counts["dead_letter"]) == (0, 3)


def test_an_older_file_is_counted_when_it_is_upgraded(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    with monkeypatch.context() as past:
        past.setattr(sqlite_migrate, "MIGRATIONS", sqlite_migrate.MIGRATIONS[:5])
        past.setattr(sqlite_migrate, "NEWEST_VERSION", 5)
        migrate(connection, ":memory:")
    chance = random.Random(7)
    for n in range(50):
        values: tuple[Any, ...] = (f"g{n % 3}", chance.choice(["pending", "scheduled", "blocked", "running"]))
        connection.execute(
            "INSERT INTO taskmill_task (type, group_name, status, priority, urgency, payload, created_at, queued_at)"
            " VALUES ('d::t', ?, ?, 1, 1, '{}', 0, 0)",
            values,
        )
    migrate(connection, ":memory:")
    rows = connection.execute("SELECT group_name, type, status FROM taskmill_task WHERE status <> 'running'").fetchall()
    found = connection.execute("SELECT group_name, type, status, tasks FROM taskmill_load").fetchall()
    connection.close()
    assert {row[:3]: row[3] for row in found} == Counter(rows)


class _Enough(Exception):
    """Stops a move after the tasks were counted in the target."""


def test_a_move_counts_the_tasks_in_the_target_and_its_undoing_forgets_them(store: str, tmp_path: Path) -> None:
    source, book = tmp_path / "source.db", Book(tmp_path / "book")
    filled(source, book, 5, size=20)

    def stop(step: Step) -> None:
        if step.phase == "comparing":
            raise _Enough

    with pytest.raises(_Enough):
        move(source, store, watch=stop)
    assert kept(store) == counted(store) == kept(source) != {}
    undo(source, store)
    assert kept(store) == counted(store) == {}
    assert kept(source) == counted(source) != {}
