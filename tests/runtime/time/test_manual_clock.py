"""The manual clock is exact to the millisecond, whatever floats are added to it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from taskmill.testing import ManualClock

pytestmark = pytest.mark.one_engine("no store is opened")

START = datetime(2026, 1, 1, tzinfo=UTC)


async def test_a_sleep_for_a_sum_of_floats_ends_at_its_millisecond_and_time_stays_on_the_grid() -> None:
    clock = ManualClock(START)
    woken: list[timedelta] = []

    async def sleep() -> None:
        for _ in range(50):
            # 4.001 + 0.001 is slightly more than 4.002.
            await clock.sleep(0.001)
            await clock.sleep(1)
            woken.append(clock.now() - START)

    sleeping = asyncio.create_task(sleep())
    await clock.advance(51)
    await sleeping
    assert woken == [timedelta(milliseconds=1001 * n) for n in range(1, 51)]
    assert clock.now() - START == timedelta(seconds=51)


async def test_the_steady_clock_never_goes_back() -> None:
    clock = ManualClock(START)
    await clock.advance(4.002)
    seen = [clock.monotonic()]
    await clock.wait(asyncio.Event(), 4.001 + 0.001)
    seen.append(clock.monotonic())
    await clock.advance(0)
    seen.append(clock.monotonic())
    await clock.advance(0.001)
    seen.append(clock.monotonic())
    assert seen == sorted(seen)
    assert clock.now() - START == timedelta(seconds=4.003)


@contextmanager
def working(clock: ManualClock, function: Callable[[], object]) -> Iterator[None]:
    """Run ``function`` in a thread, as a handler on this clock."""
    loop = asyncio.get_running_loop()

    def run() -> None:
        function()
        loop.call_soon_threadsafe(lambda: clock.work_ends(may_block=True, thread=thread))

    thread = threading.Thread(target=run)
    clock.work_begins(may_block=True, thread=thread)
    thread.start()
    yield
    thread.join()


async def test_a_thread_that_waits_for_an_event_costs_no_real_time() -> None:
    clock, gate = ManualClock(START), threading.Event()
    with working(clock, gate.wait):
        began = time.monotonic()
        for _ in range(100):
            await clock.advance(1)
        assert time.monotonic() - began < 10, "each step would wait for a quarter of a second"
        gate.set()


async def test_a_thread_whose_event_was_set_finishes_before_time_moves_on() -> None:
    clock, gate, done = ManualClock(START), threading.Event(), list[int]()

    def handler(number: int) -> None:
        gate.wait()
        done.append(number)

    for number in range(50):
        gate.clear()
        with working(clock, lambda number=number: handler(number)):  # type: ignore[misc]
            await clock.advance(1)
            assert done == list(range(number))
            gate.set()
            await clock.advance(1)
            assert done == list(range(number + 1))


async def test_a_thread_that_starts_threads_or_waits_for_a_short_time_is_not_done() -> None:
    clock, done = ManualClock(START), list[str]()

    def handler() -> None:
        for _ in range(5):
            other = threading.Thread(target=time.sleep, args=(0.001,))
            other.start()
            other.join()
        threading.Event().wait(0.01)
        done.append("handler")

    with working(clock, handler):
        await clock.advance(1)
        assert done == ["handler"]
