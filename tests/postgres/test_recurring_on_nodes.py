"""A recurring series on several nodes, one of which has a wrong clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from taskmill import Domain, Scheduler
from taskmill.events import RecurringSkipped
from taskmill.testing import ManualClock

DAY = timedelta(days=1)


class Node:
    """A scheduler with its own clock, which starts at the time of the database."""

    def __init__(self, store: str) -> None:
        self.clock = ManualClock(datetime.now(UTC))
        self.domain = Domain("d")
        self.starts: list[float] = []

        @self.domain.task(key="tick")
        async def tick() -> None:
            self.starts.append(self.clock.monotonic())

        self.tick = tick
        self.scheduler = Scheduler(store, domains=[self.domain], clock=self.clock)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        async with self.scheduler, self.scheduler.running():
            yield


async def advance(nodes: list[Node], seconds: float) -> None:
    for node in nodes:
        await node.clock.advance(seconds)


async def next_run(node: Node) -> datetime:
    (schedule,) = (await node.scheduler.snapshot()).schedules
    assert isinstance(schedule.next_run, datetime)
    return schedule.next_run


async def test_a_node_that_was_a_day_ahead_for_a_moment_leaves_the_series_one_interval_away(
    postgres_store: str,
) -> None:
    wrong, right = Node(postgres_store), Node(postgres_store)
    async with wrong.at_work(), right.at_work():
        await wrong.tick.options(every=3600).submit()
        await advance([wrong, right], 1)
        await wrong.clock.jump(DAY)
        await advance([wrong, right], 30)
        assert wrong.starts, "it started the occurrences that were due by its clock"
        await wrong.clock.jump(-DAY)
        await advance([wrong, right], 0)
        assert timedelta() < await next_run(right) - right.clock.now() <= timedelta(hours=1)


async def test_a_node_whose_clock_is_put_back_moves_nothing_of_the_others(postgres_store: str) -> None:
    wrong, right = Node(postgres_store), Node(postgres_store)
    async with wrong.at_work(), right.at_work():
        skips = right.scheduler.events(RecurringSkipped)
        await right.tick.options(every=3600).submit()
        while not await right.scheduler.history(limit=1):
            await advance([wrong, right], 1)
        before = await next_run(right)
        await wrong.clock.jump(-DAY)
        await advance([wrong, right], 30)
        assert await next_run(right) == before
        assert len(wrong.starts + right.starts) == 1
    await skips.aclose()
    assert [event async for event in skips] == []
