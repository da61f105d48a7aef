"""The thread of a store wakes the event loop when a function has ended, unless the result may wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from taskmill.core.clock import SystemClock
from taskmill.store.sql.store_thread import StoreThread

NEVER = 1000.0
"""A patience, in seconds, that no test waits for."""


@pytest.fixture
async def thread() -> AsyncIterator[StoreThread]:
    thread = StoreThread("patient", SystemClock())
    yield thread
    await thread.close()


class Call:
    """A function that ends when it is let go, and what became of it."""

    def __init__(self, thread: StoreThread, *, patience: float) -> None:
        self.go = threading.Event()
        self.is_done = asyncio.Event()
        thread.start(self._function, lambda _result, _wrong: self.is_done.set(), patience=patience)
        self._thread = thread

    def _function(self) -> None:
        assert self.go.wait(30)

    async def ends(self) -> None:
        """Let the function end, and wait until its result is there."""
        self.go.set()
        while not self._thread._ended:
            await asyncio.sleep(0)


async def test_a_result_that_may_wait_does_not_wake_the_loop_until_it_is_fetched(thread: StoreThread) -> None:
    call = Call(thread, patience=NEVER)
    await call.ends()
    for _ in range(100):
        await asyncio.sleep(0)
    assert not call.is_done.is_set()
    thread.fetch()
    assert call.is_done.is_set()


async def test_a_result_that_is_fetched_too_early_wakes_the_loop_when_it_is_there(thread: StoreThread) -> None:
    call = Call(thread, patience=NEVER)
    thread.fetch()
    assert not call.is_done.is_set()
    call.go.set()
    await asyncio.wait_for(call.is_done.wait(), 30)


async def test_a_result_waits_no_longer_than_its_patience(thread: StoreThread) -> None:
    call = Call(thread, patience=0.001)
    call.go.set()
    await asyncio.wait_for(call.is_done.wait(), 30)


async def test_a_result_without_patience_wakes_the_loop(thread: StoreThread) -> None:
    for patience in (NEVER, 0):
        call = Call(thread, patience=patience)
        thread.fetch()
        call.go.set()
        await asyncio.wait_for(call.is_done.wait(), 30)
