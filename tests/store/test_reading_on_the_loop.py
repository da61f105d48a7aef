"""One task of a file is read on the event loop, but never while the reader's thread uses the connection."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from taskmill.core.clock import SystemClock
from taskmill.model.records import TaskRecord
from taskmill.store.sqlite.store import SqliteStore
from tests.store.contract.samples import add, new_task


async def test_a_record_is_read_without_the_thread_while_that_is_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(str(tmp_path / "t.db"), "full", SystemClock())
    await store.open()
    (id,) = await add(store, new_task())
    with monkeypatch.context() as patch:
        patch.setattr(store._reader, "start", None)
        assert isinstance(await store.get(id), TaskRecord)
        assert await store.get(id + 1) is None
    await store.close()


async def test_a_record_waits_for_the_thread_that_reads_something_else(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "t.db"), "full", SystemClock())
    await store.open()
    (id,) = await add(store, new_task())
    entered, released = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def read(_connection: object) -> None:
        loop.call_soon_threadsafe(entered.set)
        released.wait()

    slow = asyncio.create_task(store._read(read))
    await entered.wait()
    looking = asyncio.create_task(store.get(id))
    await asyncio.sleep(0)
    assert not looking.done(), "two threads must not use one connection at a time"
    released.set()
    assert isinstance(await looking, TaskRecord)
    await slow
    await store.close()
