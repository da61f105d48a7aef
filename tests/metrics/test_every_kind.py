"""The counter of each kind of event moves, and equals the number of events that a lossless listener gets."""

from __future__ import annotations

import asyncio
from collections import Counter

import taskmill.events
from taskmill import Aging, Context, Domain, Group, Priority, Retry, Scheduler
from taskmill.cron import Cron
from taskmill.events import Event
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.metrics.scraping import Scrape

ELSEWHERE = {"EventsMissed"}
"""A buffer so large that the listener misses nothing."""


async def test_every_kind_of_event_is_counted_as_often_as_it_is_heard(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    life = Life(manual_clock)
    scheduler = await taskmill_scheduler(
        domains=[life.domain],
        max_concurrency=2,
        groups={"a": Group(weight=2)},
        cron=[Cron("by-the-clock", "* * * * *", lambda: None, 1)],
        aging=Aging(grace=100, interval=1, ceiling=Priority.HIGH),
    )
    scrape, heard = Scrape(scheduler), list[Event]()
    events = scheduler.events()

    async def hear() -> None:
        async for event in events:
            heard.append(event)

    hearing = asyncio.create_task(hear())
    async with scheduler.running():
        await life.live(scheduler)
    await events.aclose()
    await hearing
    counted = {kind: count for (kind,), count in scrape.all("taskmill_events_total").items() if count}
    assert counted == Counter(type(event).__name__ for event in heard)
    kinds = {*taskmill.events.__all__} - {"Event", "TaskEvent", "GroupEvent"}
    assert kinds - {*counted} == ELSEWHERE


class Life:
    """A workload that causes every kind of event."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.domain = Domain("d", retry=Retry.none())

        @self.domain.task
        async def work(ctx: Context, seconds: float = 0, fails: bool = False) -> None:
            ctx.progress(0.5)
            await clock.sleep(seconds)
            if fails:
                raise ValueError("no")

        @self.domain.task
        async def parent(ctx: Context) -> None:
            await ctx.spawn(work.prepare(1))

        self.work, self.parent = work, parent

    async def live(self, scheduler: Scheduler) -> None:
        await self.families_and_dependencies()
        await self.endings_without_a_run()
        await self.a_series(scheduler)
        await self.groups_and_urgency(scheduler)

    async def families_and_dependencies(self) -> None:
        await self.parent.submit()
        failing = await self.work.submit(1, fails=True)
        await self.work.options(depends_on=[failing]).submit()
        await self.work.options(depends_on=[await self.work.submit(1)]).submit()
        await self.clock.advance(20)

    async def endings_without_a_run(self) -> None:
        await self.work.options(key="k", run_after=100).submit()
        await self.work.options(key="k", on_duplicate="supersede", run_after=100).submit(1)
        await (await self.work.options(run_after=100).submit()).cancel()
        await self.work.options(run_after=100, ttl=5).submit()
        await self.clock.advance(20)

    async def a_series(self, scheduler: Scheduler) -> None:
        series = await self.work.options(every=10).submit(25)
        await self.clock.advance(27)
        await scheduler.pause_recurring(series.id)
        await scheduler.resume_recurring(series.id)
        await scheduler.cancel_recurring(series.id)
        await self.clock.advance(60)

    async def groups_and_urgency(self, scheduler: Scheduler) -> None:
        group = scheduler.group("a")
        await group.pause()
        await group.resume()
        await group.set(weight=3)
        waiting = [self.work.options(group="a", priority=Priority.LOW).prepare(300) for _ in range(3)]
        await scheduler.submit_many(waiting)
        await self.clock.advance(250)
        await self.work.options(priority=Priority.CRITICAL).submit(1)
        await self.clock.advance(2000)
