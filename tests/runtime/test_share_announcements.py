"""Changes of shares are told at once, also while every slot is taken and nothing can start or end."""

from __future__ import annotations

import asyncio

import pytest

from taskmill import Domain, Group, RateLimit
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


@pytest.mark.parametrize(
    "held_by", ["rate of the group", "rate of the type", "cap of the domain", "pause of the domain"]
)
async def test_a_snapshot_and_an_explanation_tell_the_share_that_holds(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, held_by: str
) -> None:
    """A group that is held back has no share beyond what runs, and the others have its slots."""
    first, second = Domain("first"), Domain("second")

    @first.task(group="a")
    async def held() -> None:
        await asyncio.Event().wait()

    @second.task(group="b")
    async def free() -> None:
        await asyncio.Event().wait()

    once = RateLimit(1, 3600)
    scheduler = await taskmill_scheduler(
        domains=[first, second], max_concurrency=8, shutdown_grace=0, groups={"a": Group(weight=3)}
    )
    await scheduler.submit_many([task.prepare() for task in (held, free) for _ in range(20)])
    match held_by:
        case "rate of the group":
            await scheduler.group("a").set(rate=once)
        case "rate of the type":
            await scheduler.set_rate_limit("first::held", once)
        case "cap of the domain":
            await scheduler.domain("first").set_max_concurrency(1)
        case _:
            await scheduler.domain("first").pause()
    changes = scheduler.events(GroupAllocationChanged)
    async with scheduler.running():
        await manual_clock.advance(1)
        await changes.aclose()
        events = [event async for event in changes]
        groups = (await scheduler.snapshot()).groups
        *_, last = await scheduler.tasks(group="b")
        said = str(await scheduler.explain(last.id))
    started = 0 if held_by == "pause of the domain" else 1
    assert {name: (group.running, group.slots) for name, group in groups.items()} == {
        "a": (started, started),
        "b": (8 - started, 8 - started),
    }
    last_told = {event.group: event.new_slots for event in events if isinstance(event, GroupAllocationChanged)}
    assert last_told.get("a", 0) == started
    assert last_told["b"] == 8 - started
    assert f"runs {8 - started} and its share is {8 - started} of 8 slots" in said
