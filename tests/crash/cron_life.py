"""A process whose cron tasks are due every minute, which here takes a tenth of a second: ``cron_life ORDER``.

It runs until it is killed. In the role ``calm`` nothing fails; it ends after every task has succeeded a few times and
nothing is left to do.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from taskmill import Context, Domain, Scheduler
from taskmill.cron import Cron
from taskmill.events import CronFired
from tests.crash.cron_rival import FastClock
from tests.crash.journal import Journal
from tests.crash.orders import Order, received

EACH_MINUTE = "* * * * *"
ENOUGH = 3
"""How often each task must succeed before a calm run ends."""
domain = Domain("life")


class QuickClock(FastClock):
    speed = 600


class Life:
    """State that the handlers of this process share."""

    def __init__(self, order: Order, journal: Journal) -> None:
        self.is_calm = order.role == "calm"
        self.journal = journal
        self.successes: Counter[str] = Counter()

    async def run(self, ctx: Context, minutes: float, *, fails: bool) -> None:
        name, id = ctx.task.tags["cron"], ctx.task.id
        self.journal.write("begin", name=name, id=id)
        if not self.is_calm:
            await asyncio.sleep(minutes * 60 / QuickClock.speed)  # part of the load
        if fails and not self.is_calm:
            self.journal.write("fail", name=name, id=id)
            raise ValueError("as planned")
        self.journal.write("end", name=name, id=id)
        self.successes[name] += 1

    async def has_seen_enough(self, names: list[str]) -> None:
        while any(self.successes[name] < ENOUGH for name in names):
            await asyncio.sleep(0.01)


@domain.task
async def steady(ctx: Context) -> None:
    await ctx.state(Life).run(ctx, 0, fails=False)


@domain.task
async def long(ctx: Context) -> None:
    """Run so long that some of its occurrences pass."""
    await ctx.state(Life).run(ctx, 2.5, fails=False)


@domain.task
async def flaky(ctx: Context) -> None:
    """Fail once, and succeed in the retry, before its next occurrence is due."""
    await ctx.state(Life).run(ctx, 0.1, fails=ctx.task.attempt % 2 == 1)


@domain.task
async def hopeless(ctx: Context) -> None:
    """Fail; its next occurrence replaces it before its retry."""
    await ctx.state(Life).run(ctx, 0, fails=True)


def declarations(order: Order) -> list[Cron]:
    """Return the cron tasks; from run to run one is added, removed or changed."""
    cron = [
        Cron("steady", EACH_MINUTE, steady, 1),
        Cron("long", EACH_MINUTE, long, 1),
        Cron("flaky", EACH_MINUTE, flaky, 10 + order.seed % 3),
        Cron("hopeless", EACH_MINUTE, hopeless, 3600),
    ]
    return [*cron, Cron("guest", EACH_MINUTE, long, 1)] if order.role == "work" and order.seed % 2 else cron


async def tell(scheduler: Scheduler, journal: Journal) -> None:
    async for event in scheduler.events(CronFired):
        if isinstance(event, CronFired):
            occurrence = round(event.occurrence.timestamp() * 1000)
            journal.write("fired", name=event.name, id=event.task_id, occurrence=occurrence)


async def main(order: Order) -> None:
    journal = Journal(Path(order.journal), order.who)
    life, cron = Life(order, journal), declarations(order)
    async with Scheduler(order.file, cron=cron, clock=QuickClock(), state=[life], retention=None) as scheduler:
        telling = asyncio.create_task(tell(scheduler, journal))
        async with scheduler.running():
            await life.has_seen_enough([each.name for each in cron] if life.is_calm else ["none"])
        await scheduler.run_until_idle()
        telling.cancel()


if __name__ == "__main__":
    asyncio.run(main(received()))
