"""A moved queue has the same rows, and continues where it was."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from pathlib import Path

import psycopg
import pytest

from taskmill import Retention
from taskmill.moving import Step, move
from tests.moving.everything import (
    Book,
    filled,
    leave_running,
    nothing_ran_twice,
    rows_of,
    run_to_the_end,
    scheduler_on,
    work,
)
from tests.repetition import seeds

REACHED = (
    "task",
    "history",
    "error",
    "dependency",
    "series",
    "control",
    "setting",
    "task_tag",
    "history_tag",
    "tally",
    "io",
    "type",
)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "book")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.mark.parametrize("seed", seeds(1))
def test_a_queue_that_went_to_postgresql_and_back_is_the_same(
    file: Path, postgres_store: str, book: Book, seed: int
) -> None:
    filled(file, book, seed)
    before = rows_of(file)
    assert {name for name in REACHED if not before[f"taskmill_{name}"]} == set()
    assert {row["status"] for row in before["taskmill_task"]} >= {"pending", "blocked", "scheduled", "waiting"}
    moved = move(file, postgres_store)
    assert moved.rows["task"] == len(before["taskmill_task"])
    assert rows_of(postgres_store) == before
    move(postgres_store, file)
    assert rows_of(file) == before
    asyncio.run(run_to_the_end(file, book))
    nothing_ran_twice(book)


def test_a_queue_on_postgresql_with_history_of_its_own_goes_to_a_file_and_back(
    file: Path, postgres_store: str, book: Book
) -> None:
    filled(postgres_store, book, 4)
    before = rows_of(postgres_store)
    move(postgres_store, file)
    assert rows_of(file) == before
    move(file, postgres_store)
    assert rows_of(postgres_store) == before
    asyncio.run(run_to_the_end(postgres_store, book))
    nothing_ran_twice(book)


def test_a_queue_moves_between_two_files(file: Path, tmp_path: Path, book: Book) -> None:
    filled(file, book, 5)
    before = rows_of(file)
    move(file, tmp_path / "other.db")
    assert rows_of(tmp_path / "other.db") == before
    assert (tmp_path / "other.db").stat().st_mode & 0o777 == 0o600


def test_a_task_whose_process_died_runs_again_in_the_other_store(file: Path, postgres_store: str, book: Book) -> None:
    filled(file, book, 6)
    orphans = leave_running(file)
    assert orphans
    move(file, postgres_store)
    found = {row["id"]: row for row in rows_of(postgres_store)["taskmill_task"]}
    assert {found[id]["status"] for id in orphans} <= {"pending", "waiting"}
    assert all(found[id]["interrupted"] and found[id]["crashes"] for id in orphans)
    asyncio.run(run_to_the_end(postgres_store, book))
    nothing_ran_twice(book)


def test_ids_continue_above_the_highest_that_was_ever_given(file: Path, postgres_store: str, book: Book) -> None:
    async def last_id(store: str | Path, *, prune: bool) -> int:
        async with scheduler_on(store, book) as scheduler:
            handle = await work.options(every=60).submit("last")
            await scheduler.cancel_recurring(handle.id)
            if prune:
                await scheduler.prune(Retention(max_count=0))
            return handle.id

    highest = asyncio.run(last_id(file, prune=True))
    move(file, postgres_store)
    there = asyncio.run(last_id(postgres_store, prune=True))
    assert there > highest
    move(postgres_store, file)
    assert asyncio.run(last_id(file, prune=False)) > there
    connection = sqlite3.connect(file)
    assert connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'taskmill_series'").fetchone() == (3,)
    connection.close()


def test_a_table_that_a_migration_adds_moves_without_being_named(file: Path, postgres_store: str, book: Book) -> None:
    filled(file, book, 7, size=3)
    asyncio.run(_opened(postgres_store, book))
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("CREATE TABLE taskmill_later (name TEXT, n INTEGER, ok INTEGER, PRIMARY KEY (name, n)) STRICT")
    connection.executemany("INSERT INTO taskmill_later VALUES (?, ?, ?)", [("a", n, n % 2) for n in range(30)])
    connection.close()
    with psycopg.connect(postgres_store) as database:
        database.execute(
            'CREATE TABLE taskmill_later (name text COLLATE "C", n bigint, ok boolean, PRIMARY KEY (name, n))'
        )
    before = rows_of(file)
    move(file, postgres_store)
    assert rows_of(postgres_store) == before


async def _opened(store: str, book: Book) -> None:
    async with scheduler_on(store, book):
        return


def test_progress_is_reported_from_the_first_row_to_the_last(
    file: Path, postgres_store: str, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(file, book, 8)
    monkeypatch.setattr("taskmill.store.moving.journey.BATCH_ROWS", 10)
    steps: list[Step] = []
    moved = move(file, postgres_store, watch=steps.append)
    for phase, times in (("copying", 1), ("comparing", 2)):
        told = [step for step in steps if step.phase == phase]
        assert [step.done for step in told] == sorted(step.done for step in told)
        assert told[-1].done == told[-1].total == times * sum(moved.rows.values())


def test_large_payloads_are_moved_in_small_parts(
    file: Path, postgres_store: str, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fill() -> None:
        async with scheduler_on(file, book) as scheduler:
            await scheduler.submit_many([work.prepare("x" * 100_000) for _ in range(50)])

    asyncio.run(fill())
    monkeypatch.setattr("taskmill.store.moving.journey.BATCH_BYTES", 1_000_000)
    steps: list[Step] = []
    move(file, postgres_store, watch=steps.append)
    tasks = [step.done for step in steps if step.phase == "copying" and step.table == "taskmill_task"]
    assert max(after - before for before, after in itertools.pairwise(tasks)) <= 11
