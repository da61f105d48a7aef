"""One task of a file is read on the event loop, but only while no thread is at work and the file is free."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from taskmill import StoreCorrupt
from taskmill.core.clock import SystemClock
from taskmill.model.records import TaskRecord
from taskmill.store.sql.store_thread import StoreThread
from taskmill.store.sqlite.store import MOST_READS_ON_LOOP, SqliteStore
from tests.store.contract.samples import add, new_task


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "t.db"), "full", SystemClock())
    await store.open()
    yield store
    await store.close()


async def test_a_record_is_read_without_a_thread(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    (id,) = await add(store, new_task())
    with monkeypatch.context() as patch:
        patch.setattr(store._reader, "start", None)
        assert isinstance(await store.get(id), TaskRecord)
        assert await store.get(id + 1) is None


@pytest.mark.parametrize("at_work", [SqliteStore._read, lambda store, work: store._write(work, rows=1000)])
async def test_a_record_is_read_in_the_thread_while_a_thread_is_at_work(
    store: SqliteStore, at_work: Callable[[SqliteStore, Callable[[object], int]], Awaitable[int]]
) -> None:
    (id,) = await add(store, new_task())
    entered, released = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work(_connection: object) -> int:
        loop.call_soon_threadsafe(entered.set)
        released.wait()
        return 0

    working = asyncio.ensure_future(at_work(store, work))
    await entered.wait()
    looking = asyncio.create_task(store.get(id))
    await asyncio.sleep(0)
    assert not looking.done(), "two threads must not use one connection, nor the same rules, at a time"
    released.set()
    assert isinstance(await looking, TaskRecord)
    await working


async def test_a_locked_file_does_not_block_the_loop(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    (id,) = await add(store, new_task())

    class Locked:
        def __getattr__(self, name: str) -> object:
            raise sqlite3.OperationalError("database is locked")

    with monkeypatch.context() as patch:
        patch.setattr(store._writer, "session", Locked())
        assert isinstance(await store.get(id), TaskRecord)


async def test_a_damaged_row_is_named(store: SqliteStore) -> None:
    (id,) = await add(store, new_task())
    store._connection.execute("UPDATE taskmill_task SET tags = 'no json'")
    with pytest.raises(StoreCorrupt, match=f"task {id}"):
        await store.get(id)


@pytest.mark.parametrize("name", ["t.db", ":memory:"])
async def test_reading_without_a_pause_leaves_the_loop_to_others(tmp_path: Path, name: str) -> None:
    store = SqliteStore(str(tmp_path / name) if name != ":memory:" else name, "full", SystemClock())
    await store.open()
    (id,) = await add(store, new_task())
    polls, has_ended = 0, asyncio.Event()
    asyncio.get_running_loop().call_soon(has_ended.set)
    while not has_ended.is_set():
        assert isinstance(await store.get(id), TaskRecord)
        polls += 1
    await store.close()
    assert polls <= MOST_READS_ON_LOOP + 1


async def test_many_callers_at_the_same_time_read_in_the_thread(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (id,) = await add(store, new_task())
    in_thread, really_start = 0, StoreThread.start

    def start(self: StoreThread, *work: Any) -> None:
        nonlocal in_thread
        in_thread += 1
        really_start(self, *work)

    monkeypatch.setattr(StoreThread, "start", start)
    callers = 10 * MOST_READS_ON_LOOP
    records = await asyncio.gather(*(store.get(id) for _ in range(callers)))
    assert {type(record) for record in records} == {TaskRecord}
    assert in_thread == callers - 2 * MOST_READS_ON_LOOP
