"""A move that would lose data or mix two queues is refused, and the error says what to do instead."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from taskmill import (
    AlreadyRunning,
    ConfigError,
    InvalidState,
    SchemaTooNew,
    StoreCorrupt,
    StoreError,
    StoreMoved,
    blocking,
)
from taskmill.moving import move, undo
from taskmill.store.moving import journey
from tests.acceptance.command_line import ENVIRONMENT
from tests.moving.everything import Book, filled, rows_of, scheduler_on, work


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "book")


@pytest.fixture
def file(tmp_path: Path, book: Book) -> Path:
    asyncio.run(store_one(tmp_path / "tasks.db", book))
    return tmp_path / "tasks.db"


async def store_one(store: str | Path, book: Book) -> None:
    async with scheduler_on(store, book):
        await work.options(key="one").submit("one")


def is_untouched(store: str | Path, book: Book) -> bool:
    asyncio.run(store_one(store, book))
    return True


async def test_a_file_that_is_dispatched_does_not_move(file: Path, postgres_store: str, book: Book) -> None:
    async with scheduler_on(file, book) as scheduler, scheduler.running():
        with pytest.raises(AlreadyRunning, match=r"is dispatched, or being moved, by process \d+; stop it"):
            await asyncio.to_thread(move, file, postgres_store)
    await asyncio.to_thread(move, file, postgres_store)


async def test_a_cluster_that_is_dispatched_does_not_move(postgres_store: str, tmp_path: Path, book: Book) -> None:
    async with scheduler_on(postgres_store, book) as scheduler, scheduler.running():
        with pytest.raises(AlreadyRunning, match=r"is dispatched by .+:\d+; stop it"):
            await asyncio.to_thread(move, postgres_store, tmp_path / "other.db")
    await asyncio.to_thread(move, postgres_store, tmp_path / "other.db")


async def test_nothing_moves_to_a_store_with_a_dispatcher(file: Path, postgres_store: str, book: Book) -> None:
    async with scheduler_on(postgres_store, book) as scheduler, scheduler.running():
        with pytest.raises(AlreadyRunning, match="is dispatched by"):
            await asyncio.to_thread(move, file, postgres_store)
    await store_one(file, book)


def test_a_store_with_anything_in_it_is_no_target(file: Path, postgres_store: str, book: Book) -> None:
    asyncio.run(store_one(postgres_store, book))
    before = rows_of(postgres_store)
    with pytest.raises(StoreError, match=r"is not empty: table taskmill_task has rows\. .* name another"):
        move(file, postgres_store)
    assert rows_of(postgres_store) == before
    assert is_untouched(file, book)


def test_a_store_that_was_only_opened_is_empty(file: Path, postgres_store: str, book: Book) -> None:
    async def open_it() -> None:
        async with scheduler_on(postgres_store, book) as scheduler:
            await scheduler.run_until_idle()

    asyncio.run(open_it())
    assert move(file, postgres_store).rows["task"] == 1


@pytest.mark.parametrize("spelling", ["{0}", "{0}/../{1}/tasks.db"])
def test_a_file_does_not_move_to_itself(file: Path, spelling: str, book: Book) -> None:
    target = str(file) if spelling == "{0}" else spelling.format(file.parent, file.parent.name)
    with pytest.raises(ConfigError, match="both SOURCE and TARGET"):
        move(file, target)
    assert is_untouched(file, book)


def test_a_database_does_not_move_to_itself(postgres_store: str, book: Book) -> None:
    asyncio.run(store_one(postgres_store, book))
    with pytest.raises(ConfigError, match="both SOURCE and TARGET"):
        move(postgres_store, postgres_store + "&connect_timeout=5")
    assert is_untouched(postgres_store, book)


def test_a_store_in_memory_does_not_move(file: Path) -> None:
    with pytest.raises(ConfigError, match="in memory"):
        move(":memory:", file)
    with pytest.raises(ConfigError, match="in memory"):
        move(file, ":memory:")


def test_a_source_that_is_not_there_is_not_made(tmp_path: Path, postgres_store: str) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        move(tmp_path / "none.db", postgres_store)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreError, match="taskmill's tables are not in it"):
        move(postgres_store, tmp_path / "other.db")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_cannot_be_reached_leaves_the_source_as_it_is(file: Path, book: Book) -> None:
    with pytest.raises(StoreError, match="cannot be reached"):
        move(file, "postgresql://nobody@/none?host=/nonexistent")
    assert is_untouched(file, book)


def test_another_schema_is_told_apart_from_this_one(file: Path, postgres_store: str, book: Book) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("INSERT INTO taskmill_schema VALUES (99, 'later')")
    with pytest.raises(SchemaTooNew, match=r"has schema 99.*upgrade taskmill"):
        move(file, postgres_store)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM taskmill_schema")
        connection.execute("INSERT INTO taskmill_schema VALUES (0, 'earlier')")
    with pytest.raises(StoreError, match=r"has schema 0, .*upgrade it with `taskmill status .*`, then run"):
        move(file, postgres_store)


def test_an_old_schema_on_a_server_is_upgraded_by_a_scheduler(tmp_path: Path, postgres_store: str) -> None:
    with blocking.Scheduler(postgres_store):
        pass
    with psycopg.connect(postgres_store) as connection:
        connection.execute("DELETE FROM taskmill_schema WHERE version = (SELECT max(version) FROM taskmill_schema)")
    with pytest.raises(StoreError, match="open it with a scheduler whose user may create tables"):
        move(postgres_store, tmp_path / "other.db")


def test_without_the_extra_it_says_which_to_install(file: Path, tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise ImportError('no psycopg here')")
    done = subprocess.run(
        [sys.executable, "-m", "taskmill", "move", str(file), "postgresql://ann@db.example/app"],
        env={**ENVIRONMENT, "PYTHONPATH": f"{tmp_path}:{ENVIRONMENT['PYTHONPATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "install taskmill[postgres]" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_row_that_postgresql_cannot_hold_is_named(file: Path, postgres_store: str, book: Book) -> None:
    filled(file, book, 1, size=20)
    with closing(sqlite3.connect(file)) as connection, connection:
        (id,) = connection.execute("SELECT max(id) FROM taskmill_task").fetchone()
        connection.execute("UPDATE taskmill_task SET label = 'a' || char(0) || 'b' WHERE id = ?", (id,))
    before = rows_of(file)
    with pytest.raises(StoreCorrupt, match=rf"cannot hold a row of taskmill_task \(id {id}\)"):
        move(file, postgres_store)
    undo(file, postgres_store)
    assert rows_of(file) == before


def test_a_copy_that_differs_is_not_handed_over_and_is_made_anew(
    file: Path, postgres_store: str, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(file, book, 2, size=20)
    before = rows_of(file)
    whole = journey._compare

    def spoiled(*given: object) -> object:
        with psycopg.connect(postgres_store, autocommit=True) as connection:
            connection.execute("SET taskmill.mover = 'at work'")
            connection.execute(
                "UPDATE taskmill_history SET attempt = attempt + 1 WHERE id = (SELECT min(id) FROM taskmill_history)"
            )
        return whole(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(journey, "_compare", spoiled)
    with pytest.raises(StoreError, match=r"taskmill_history differs: .* Nothing was handed over"):
        move(file, postgres_store)
    monkeypatch.undo()
    with pytest.raises(StoreMoved, match="is being filled from"):
        asyncio.run(store_one(postgres_store, book))
    move(file, postgres_store)
    assert rows_of(postgres_store) == before


def test_two_moves_do_not_mix(file: Path, tmp_path: Path, postgres_store: str, book: Book) -> None:
    other = tmp_path / "other.db"
    asyncio.run(store_one(other, book))
    _break_off(file, postgres_store)
    with pytest.raises(StoreMoved, match=r"tasks\.db is being moved to postgresql.*--undo"):
        move(file, tmp_path / "third.db")
    with pytest.raises(StoreMoved, match=r"is being filled from .*tasks\.db"):
        move(other, postgres_store)
    with pytest.raises(StoreMoved, match="is being filled from"):
        move(postgres_store, tmp_path / "fourth.db")
    assert is_untouched(other, book)
    move(file, postgres_store)


def _break_off(source: Path, target: str) -> None:
    class Enough(Exception):
        """Raised to interrupt the move."""

    def watch(_step: object) -> None:
        raise Enough

    with pytest.raises(Enough):
        move(source, target, watch=watch)


def test_a_moved_store_is_not_moved_elsewhere_nor_opened_again(
    file: Path, tmp_path: Path, postgres_store: str, book: Book
) -> None:
    move(file, postgres_store)
    with pytest.raises(StoreMoved, match="was moved to postgresql"):
        move(file, tmp_path / "third.db")
    with pytest.raises(InvalidState, match="bring it back with `taskmill move"):
        undo(file, postgres_store)
    with pytest.raises(InvalidState, match="there is nothing to undo"):
        undo(postgres_store, file)
    assert move(file, postgres_store).before


def test_a_source_is_opened_as_it_was_only_if_its_target_is_said_to_be_lost(
    file: Path, tmp_path: Path, book: Book
) -> None:
    target = tmp_path / "other.db"
    before = rows_of(file)
    move(file, target)
    for lost in tmp_path.glob("other.db*"):
        lost.unlink()
    with pytest.raises(StoreError, match="does not exist"):
        undo(file, target)
    with pytest.raises(StoreMoved, match="--target-is-lost"):
        move(file, target)
    undo(file, None)
    assert rows_of(file) == before
    assert is_untouched(file, book)


def test_a_move_that_an_older_taskmill_began_is_left_to_it(file: Path, postgres_store: str) -> None:
    _break_off(file, postgres_store)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE taskmill_schema SET version = version - 1")
    with pytest.raises(StoreError, match="an older version of taskmill began to move it"):
        move(file, postgres_store)
