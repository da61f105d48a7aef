"""Changes of shares are told at once, also while every slot is taken and nothing can start or end."""

from __future__ import annotations

import asyncio

from taskmill import Domain, Group
from taskmill.events import Event, GroupAllocationChanged
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


def told(events: list[Event]) -> dict[str, tuple[int, int, str]]:
    return {
        event.group: (event.previous_slots, event.new_slots, event.reason)
        for event in events
        if isinstance(event, GroupAllocationChanged)
    }


async def test_a_weight_set_while_all_slots_are_taken_is_told_at_once(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task
    async def hold() -> None:
        await asyncio.Event().wait()

    scheduler = await taskmill_scheduler(
        domains=[domain], max_concurrency=8, shutdown_grace=0, groups={"a": Group(weight=3)}
    )
    await scheduler.submit_many([hold.options(group=name).prepare() for name in "ab" for _ in range(20)])
    async with scheduler.running():
        await manual_clock.advance(0)
        changes = scheduler.events(GroupAllocationChanged)
        await scheduler.group("b").set(weight=3)
        await manual_clock.advance(0)
        await changes.aclose()
        events = [event async for event in changes]
    assert told(events) == {"a": (6, 4, "weight_change"), "b": (2, 4, "weight_change")}


async def test_a_group_that_joins_while_all_slots_are_taken_is_told_at_once(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task
    async def hold() -> None:
        await asyncio.Event().wait()

    scheduler = await taskmill_scheduler(
        domains=[domain], max_concurrency=8, shutdown_grace=0, groups={"a": Group(weight=3)}
    )
    await scheduler.submit_many([hold.options(group="a").prepare() for _ in range(20)])
    async with scheduler.running():
        await manual_clock.advance(0)
        changes = scheduler.events(GroupAllocationChanged)
        await scheduler.submit_many([hold.options(group="b").prepare() for _ in range(20)])
        await manual_clock.advance(0)
        await changes.aclose()
        events = [event async for event in changes]
    assert told(events) == {"a": (8, 6, "rebalance"), "b": (0, 2, "rebalance")}
