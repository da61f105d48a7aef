"""The output of ``explain`` reads as sentences."""

from __future__ import annotations

import asyncio

from taskmill import Domain
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


async def test_running_and_waiting_tasks_are_explained_in_whole_sentences(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task
    async def hold() -> None:
        await asyncio.Event().wait()

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1, shutdown_grace=0)
    handles = [await hold.submit() for _ in range(2)]
    async with scheduler.running():
        await manual_clock.advance(0)
        said = [str(await handle.explain()) for handle in handles]
    assert said == [
        "Task 1 (d::hold) has been running since 2030-01-01 00:00:00 UTC, attempt 1.",
        "Task 2 (d::hold) is pending: the only slot is taken. Priority 128. It would start now with: 1 more slot.",
    ]
