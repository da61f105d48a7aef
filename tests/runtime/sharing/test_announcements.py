"""Changes of shares are announced at once, even while every slot is taken and nothing can start or end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from taskmill import Domain, Group, RateLimit
from taskmill.events import Event, GroupAllocationChanged
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


def told(events: Sequence[Event]) -> dict[str, tuple[int, int, str]]:
    return {
        event.group: (event.previous_slots, event.new_slots, event.reason)
        for event in events
        if isinstance(event, GroupAllocationChanged)
    }


async def test_a_weight_set_while_all_slots_are_taken_is_announced_at_once(
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


@pytest.mark.parametrize("how", ["a weight of 1", "a reset"])
async def test_equal_weights_are_announced_and_the_next_change_begins_with_them(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, how: str
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
        await (scheduler.group("a").set(weight=1) if how == "a weight of 1" else scheduler.reset_group_weights())
        await manual_clock.advance(0)
        equal = {name: group.slots for name, group in (await scheduler.snapshot()).groups.items()}
        await changes.aclose()
        first = [event async for event in changes]
        changes = scheduler.events(GroupAllocationChanged)
        await scheduler.group("b").set(weight=7)
        await manual_clock.advance(0)
        await changes.aclose()
        second = [event async for event in changes]
    assert equal == {"a": 4, "b": 4}
    assert told(first) == {"a": (6, 4, "weight_change"), "b": (2, 4, "weight_change")}
    assert told(second) == {"a": (4, 1, "weight_change"), "b": (4, 7, "weight_change")}


async def test_a_group_that_joins_while_all_slots_are_taken_is_announced_at_once(
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
    """A group that is held back has no share beyond its running tasks, and the others have its slots."""
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
    assert f"runs {8 - started} tasks, and its share is {8 - started} of 8 slots" in said


async def test_pauses_rates_and_the_number_of_slots_rebalance_and_a_group_that_still_has_work_is_not_drained(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> None:
        await manual_clock.sleep(1)

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=8, groups={"a": Group(weight=3)})
    await scheduler.submit_many([work.options(group=name).prepare() for name in "ab" for _ in range(200)])
    heard: list[dict[str, tuple[int, int, str]]] = []
    verbs = [
        lambda: scheduler.set_max_concurrency(4),
        lambda: scheduler.set_max_concurrency(8),
        lambda: scheduler.group("a").pause(),
        lambda: scheduler.group("a").resume(),
        lambda: scheduler.group("b").pause(duration=2),
        lambda: manual_clock.advance(1),
        lambda: scheduler.group("b").set(rate=RateLimit(1, 3600)),
        lambda: scheduler.domain("d").pause(),
        lambda: scheduler.domain("d").resume(),
        scheduler.pause,
        scheduler.resume,
    ]
    async with scheduler.running():
        await manual_clock.advance(0)
        for verb in verbs:
            changes = scheduler.events(GroupAllocationChanged)
            await verb()
            await manual_clock.advance(1)
            await changes.aclose()
            heard.append(told([event async for event in changes]))
        await scheduler.pause()
        await manual_clock.advance(5)
    assert heard == [
        {"a": (6, 3, "rebalance"), "b": (2, 1, "rebalance")},
        {"a": (3, 6, "rebalance"), "b": (1, 2, "rebalance")},
        {"a": (6, 0, "rebalance"), "b": (2, 8, "rebalance")},
        {"a": (0, 6, "rebalance"), "b": (8, 2, "rebalance")},
        {"a": (6, 8, "rebalance"), "b": (2, 0, "rebalance")},
        {"a": (8, 6, "rebalance"), "b": (0, 2, "rebalance")},
        {"a": (6, 7, "rebalance"), "b": (2, 1, "rebalance")},
        {"a": (7, 0, "rebalance"), "b": (1, 0, "rebalance")},
        {"a": (0, 8, "rebalance")},
        {},
        {},
    ]
