"""``ManualClock.advance`` ends although other code keeps the event loop busy: code that polls, or that advances too."""

from __future__ import annotations

import asyncio

import pytest

from taskmill import Context, Domain, Retry
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory

pytestmark = pytest.mark.one_engine("the clock is what is tested")


async def test_time_moves_on_beside_code_that_polls(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    ran_at: list[float] = []

    @domain.task
    async def later() -> None:
        ran_at.append(manual_clock.monotonic())

    async def poll() -> None:
        while not ran_at:
            await asyncio.sleep(0)

    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        await later.options(run_after=10).submit()
        await asyncio.wait_for(asyncio.gather(poll(), manual_clock.advance(20)), 30)
    assert ran_at == [10]


async def test_two_tests_may_advance_one_clock_at_once(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    ran_at: list[float] = []

    @domain.task
    async def later() -> None:
        ran_at.append(manual_clock.monotonic())

    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        await later.options(run_after=10).submit()
        advances = [manual_clock.advance(seconds) for seconds in (5, 20, 10)]
        await asyncio.wait_for(asyncio.gather(*advances), 30)
    assert (ran_at, manual_clock.monotonic()) == ([10], 20)


async def test_a_handler_may_advance_the_clock(taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock) -> None:
    domain = Domain("d")

    @domain.task
    async def slow() -> float:
        await manual_clock.advance(3)
        return manual_clock.monotonic()

    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        handle = await slow.submit()
        await asyncio.wait_for(manual_clock.advance(1), 30)
        assert await asyncio.wait_for(handle.result(), 30) == 3


async def test_a_handler_that_polls_has_its_timeout(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task(timeout=30, retry=Retry.none())
    async def poll(ctx: Context) -> None:
        while not ctx.cancelled:
            await asyncio.sleep(0)

    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        handle = await poll.submit()
        await asyncio.wait_for(manual_clock.advance(31), 30)
        record = await handle.wait()
    assert [error.kind for error in record.errors] == ["timeout"]
