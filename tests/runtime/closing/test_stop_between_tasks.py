"""A request to stop is never missed, whatever the loop is doing."""

from __future__ import annotations

import asyncio

from taskmill import Domain, Scheduler
from taskmill.testing import ManualClock


async def test_a_stop_while_short_handlers_end_is_not_missed(manual_clock: ManualClock, any_store: str) -> None:
    domain = Domain("d")

    @domain.task
    async def quick() -> None: ...

    @domain.task
    async def hold() -> None:
        await asyncio.Event().wait()

    async def life(scheduler: Scheduler) -> None:
        async with scheduler.running():
            await scheduler.submit_many([quick.prepare(), hold.prepare()])
            await quick.submit()
            await manual_clock.advance(0)
            await quick.submit()

    async with Scheduler(
        any_store, domains=[domain], clock=manual_clock, max_concurrency=1, shutdown_grace=0
    ) as scheduler:
        await asyncio.wait_for(life(scheduler), 10)
