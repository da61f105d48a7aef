"""An aged task that was cancelled lends its urgency to no task behind it."""

from __future__ import annotations

import asyncio

from taskmill import Aging, Context, Domain, Group, Scheduler
from taskmill.testing import ManualClock

AGING = Aging(grace=0, interval=10, step=10, ceiling=64, urgent=64)
GROUPS = {"heavy": Group(weight=100), "light": Group(weight=1)}


async def test_an_urgent_task_starts_before_younger_ones_behind_cancelled_ones(manual_clock: ManualClock) -> None:
    domain = Domain("aged")
    started: list[int] = []
    ends = {number: asyncio.Event() for number in range(20)}

    @domain.task
    async def work(ctx: Context, number: int) -> None:
        started.append(number)
        await ends[number].wait()

    heavy = work.options(group="heavy", priority=70)
    async with (
        Scheduler(
            domains=[domain], clock=manual_clock, max_concurrency=2, groups=GROUPS, aging=AGING, shutdown_grace=0
        ) as scheduler,
        scheduler.running(),
    ):
        await scheduler.submit_many([heavy.prepare(number) for number in range(6)])
        await manual_clock.advance(0)
        assert started == [0, 1]
        await work.options(group="light", priority=200).submit(10)
        await manual_clock.advance(150)
        await scheduler.cancel_where(status="pending", group="heavy")
        await scheduler.submit_many([heavy.prepare(number) for number in range(11, 17)])
        await manual_clock.advance(0)
        ends[0].set()
        await manual_clock.advance(0)
        assert started == [0, 1, 10], "the only urgent task has the next free slot"
        for end in ends.values():
            end.set()
