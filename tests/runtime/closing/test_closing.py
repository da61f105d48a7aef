"""Closing ends in bounded time, on every clock and whatever handlers do."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from taskmill import Context, Domain, Scheduler, StoreError, Task
from taskmill.runtime import attempts, upkeep
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory

STILL = 0.4


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits in real time: the test is about whether they end, not how long they last."""
    monkeypatch.setattr(upkeep, "STILL", STILL)
    monkeypatch.setattr(attempts, "ABANDON_HOOK_AFTER", STILL)


@pytest.mark.parametrize("place", ["loop", "thread", "clock", "swallows"])
async def test_closing_on_a_manual_clock_that_nothing_moves_ends(place: str, manual_clock: ManualClock) -> None:
    domain = Domain("d")
    started = threading.Event()
    may_end = threading.Event()

    @domain.task
    async def loop() -> None:
        started.set()
        await asyncio.Event().wait()

    @domain.task
    def thread(ctx: Context) -> None:
        started.set()
        may_end.wait(30)

    @domain.task
    async def clock() -> None:
        started.set()
        await manual_clock.sleep(3600)

    @domain.task
    async def swallows() -> None:
        started.set()
        while True:
            with contextlib.suppress(BaseException):
                await asyncio.Event().wait()

    tasks: dict[str, Task[[], None]] = {"loop": loop, "thread": thread, "clock": clock, "swallows": swallows}
    async with asyncio.timeout(10):
        async with Scheduler(domains=[domain], clock=manual_clock) as scheduler, scheduler.running():
            await tasks[place].submit()
            await asyncio.to_thread(started.wait)
    may_end.set()


async def test_the_fixture_closes_a_scheduler_with_a_handler_at_work(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")
    started = asyncio.Event()

    @domain.task
    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    scheduler = await taskmill_scheduler(domains=[domain])
    await work.submit()
    running = asyncio.create_task(scheduler.run())
    await started.wait()
    async with asyncio.timeout(10):
        await scheduler.close()
        await running


async def test_the_grace_of_a_close_still_passes_on_a_manual_clock_that_is_moved(manual_clock: ManualClock) -> None:
    domain = Domain("d")
    started = asyncio.Event()

    @domain.task
    async def work() -> str:
        started.set()
        await manual_clock.sleep(8)
        return "done"

    async with Scheduler(domains=[domain], clock=manual_clock, shutdown_grace=10) as scheduler:
        handle = await work.submit()
        running = asyncio.create_task(scheduler.run())
        await started.wait()
        stopping = asyncio.create_task(scheduler.stop())
        for _ in range(8):
            await manual_clock.advance(1)
            await asyncio.sleep(0.3 * STILL)
        await stopping
        await running
        assert await handle.result(timeout=0) == "done"


async def test_a_store_that_refuses_does_not_hold_up_a_close_on_a_manual_clock(
    manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = Domain("d")
    started = asyncio.Event()

    @domain.task
    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(20):
        async with Scheduler(domains=[domain], clock=manual_clock) as scheduler, scheduler.running():
            await work.submit()
            await started.wait()

            async def refuse(_turn: object) -> None:
                raise StoreError("the disk is full")

            monkeypatch.setattr(scheduler._store, "turn", refuse)


async def test_a_handler_that_swallows_cancellation_is_back_in_the_queue_after_the_close() -> None:
    domain = Domain("d")
    started = asyncio.Event()
    steps = 0

    @domain.task
    async def deaf() -> None:
        nonlocal steps
        started.set()
        while True:
            with contextlib.suppress(BaseException):
                await asyncio.sleep(0.01)
            steps += 1

    async with Scheduler(domains=[domain], shutdown_grace=0) as scheduler:
        handle = await deaf.submit()
        async with scheduler.running():
            await started.wait()
        record = await handle.record()
        after = steps
        await asyncio.sleep(0.1)
        left = [task for task in asyncio.all_tasks() if task.get_name() == "d::deaf"]
    assert (record.status, record.retries) == ("pending", 0)  # type: ignore[union-attr]
    assert steps == after, "its code has stopped, so the next attempt may begin"
    assert left == []


async def test_a_hook_that_swallows_cancellation_does_not_outlive_the_close() -> None:
    domain = Domain("d")
    started, hooked = asyncio.Event(), asyncio.Event()

    @domain.task
    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    @work.on_cancel
    async def deaf() -> None:
        hooked.set()
        while True:
            with contextlib.suppress(BaseException):
                await asyncio.sleep(3600)

    async with Scheduler(domains=[domain], shutdown_grace=0) as scheduler, scheduler.running():
        handle = await work.submit()
        await started.wait()
        await handle.cancel()
        await hooked.wait()
    async with asyncio.timeout(10):
        while any(task.get_name() == "d::work.on_cancel" for task in asyncio.all_tasks()):
            await asyncio.sleep(0.01)
