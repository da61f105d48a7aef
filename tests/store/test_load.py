"""The numbers of tasks that a file keeps are those of its rows, whatever has happened to the tasks."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from taskmill import Domain, Retry, Scheduler
from taskmill.store.sqlite import migrate as sqlite_migrate
from taskmill.store.sqlite.migrate import migrate
from tests.moving.everything import Book, filled, rows_of, run_to_the_end

domain = Domain("d", retry=Retry.none())


@domain.task
async def fails(n: int) -> None:
    raise ValueError(n)


def kept(file: Path) -> dict[tuple[str, str, str], int]:
    return {(row["group_name"], row["type"], row["status"]): row["tasks"] for row in rows_of(file)["taskmill_load"]}


def counted(file: Path) -> dict[tuple[str, str, str], int]:
    rows = (row for row in rows_of(file)["taskmill_task"] if row["status"] != "running")
    return dict(Counter((row["group_name"], row["type"], row["status"]) for row in rows))


@pytest.mark.parametrize("seed", range(4))
def test_the_numbers_kept_are_those_of_the_rows(tmp_path: Path, seed: int) -> None:
    file, book = tmp_path / "tasks.db", Book(tmp_path / "book")
    filled(file, book, seed)
    assert len({status for _, _, status in kept(file)}) > 3
    assert kept(file) == counted(file)
    asyncio.run(run_to_the_end(file, book))
    assert kept(file) == counted(file)


async def test_a_dead_letter_that_was_brought_back_is_counted_again(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    async with Scheduler(file, domains=[domain]) as scheduler:
        task = await fails.submit(1)
        await scheduler.run_until_idle()
        assert kept(file) == {}
        await scheduler.retry_dead(task.id)
        assert kept(file) == {("", "d::fails", "pending"): 1}


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
