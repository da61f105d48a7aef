"""A scheduler dispatches once: a second start is refused, and the first one continues."""

from __future__ import annotations

import asyncio

import pytest

from taskmill import Domain, InvalidState, Scheduler

pytestmark = pytest.mark.timeout(60)


async def test_a_refused_second_start_leaves_the_first_dispatching() -> None:
    domain, released = Domain("work"), asyncio.Event()

    @domain.task
    async def wait() -> str:
        await released.wait()
        return "done"

    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        first = await wait.submit()
        with pytest.raises(InvalidState, match="already dispatching"):
            async with scheduler.running():
                pytest.fail("the block must not start")
        for again in (scheduler.run, scheduler.run_until_idle):
            with pytest.raises(InvalidState, match="already dispatching"):
                await again()
        released.set()
        second = await wait.submit()
        assert [await first.result(timeout=20), await second.result(timeout=20)] == ["done", "done"]
