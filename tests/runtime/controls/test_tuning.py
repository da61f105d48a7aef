"""Caps, concurrency and priorities that are changed while tasks run, and cancelling by common properties."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from taskmill import Domain, Group, InvalidState, Priority, Retry, TaskNotFound
from taskmill.events import GroupWeightChanged
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.records import active, endings


class Gauge:
    """A domain whose tasks take ten seconds, and how many of them run."""

    def __init__(self, clock: ManualClock, name: str = "d", **options: Any) -> None:
        self.domain = Domain(name, **options)
        self.running = 0
        self.most = 0
        self.order: list[str] = []

        @self.domain.task
        async def work(name: str = "it") -> None:
            self.order.append(name)
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await clock.sleep(10)
            finally:
                self.running -= 1

        self.task = work

    async def fill(self, count: int = 10, **options: Any) -> None:
        for n in range(count):
            await self.task.options(**options).submit(str(n))


async def test_a_domain_keeps_the_cap_it_declares(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    capped, free = Gauge(manual_clock, "capped", max_concurrency=2), Gauge(manual_clock, "free")
    scheduler = await taskmill_scheduler(domains=[capped.domain, free.domain], shutdown_grace=0, max_concurrency=5)
    await capped.fill(group="g", priority=0)
    await free.fill(group="g")
    async with scheduler.running():
        await manual_clock.advance(1)
        seen = (capped.running, free.running)
        await manual_clock.advance(100)
    assert seen == (2, 3), "slots that the domain may not use go to others, of the same group too"
    assert capped.most == 2
    assert len(capped.order) == len(free.order) == 10


async def test_a_domain_cap_is_changed_and_lifted_at_run_time(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    gauge = Gauge(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[gauge.domain], shutdown_grace=0, max_concurrency=6)
    await gauge.fill(30)
    seen: list[int] = []
    async with scheduler.running():
        for cap in (3, 1, 4, None, 2):
            await scheduler.domain("d").set_max_concurrency(cap)
            await manual_clock.advance(10)
            seen.append(gauge.running)
    assert seen == [3, 1, 4, 6, 2]


@pytest.mark.parametrize("which", ["global", "group"])
async def test_concurrency_goes_up_at_once_and_down_as_tasks_end(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, which: str
) -> None:
    gauge = Gauge(manual_clock)
    scheduler = await taskmill_scheduler(domains=[gauge.domain], shutdown_grace=0, max_concurrency=2)
    if which == "group":
        await scheduler.set_max_concurrency(20)

    async def limit(n: int) -> None:
        if which == "global":
            await scheduler.set_max_concurrency(n)
        else:
            await scheduler.group("g").set(cap=n)

    await limit(2)
    await gauge.fill(40, group="g")
    seen: list[int] = []
    async with scheduler.running():
        await manual_clock.advance(1)
        seen.append(gauge.running)
        await limit(5)
        await manual_clock.advance(0)
        seen.append(gauge.running)
        await limit(1)
        await manual_clock.advance(0)
        seen.append(gauge.running)
        await manual_clock.advance(20)
        seen.append(gauge.running)
        snapshot = await scheduler.snapshot()
    assert seen == [2, 5, 5, 1], "nothing that runs is interrupted"
    assert (snapshot.max_concurrency if which == "global" else snapshot.groups["g"].cap) == 1


async def test_a_cap_below_the_minimum_bounds_it(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    gauge = Gauge(manual_clock)
    scheduler = await taskmill_scheduler(
        domains=[gauge.domain], shutdown_grace=0, max_concurrency=6, groups={"g": Group(min_slots=4)}
    )
    await gauge.fill(20, group="g")
    async with scheduler.running():
        await scheduler.group("g").set(cap=2)
        await manual_clock.advance(11)
        running = gauge.running
        settings = (await scheduler.snapshot()).groups["g"]
    assert (running, settings.cap, settings.min_slots) == (2, 2, 2)


async def test_weights_are_changed_announced_and_reset(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    gauge = Gauge(manual_clock)
    scheduler = await taskmill_scheduler(
        store=any_store, domains=[gauge.domain], groups={"a": Group(weight=3), "b": Group(weight=1)}
    )
    events = scheduler.events(GroupWeightChanged)
    await scheduler.group("b").set(weight=5)
    await scheduler.group("b").set(cap=3)
    await scheduler.reset_group_weights()
    groups = (await scheduler.snapshot()).groups
    assert (groups["a"].weight, groups["b"].weight, groups["b"].cap) == (1, 1, 3)
    seen = [await anext(events) for _ in range(3)]
    assert [
        (event.group, event.previous_weight, event.new_weight)
        for event in seen
        if isinstance(event, GroupWeightChanged)
    ] == [("b", 1, 5), ("a", 3, 1), ("b", 5, 1)]


# Priorities


async def test_a_waiting_task_takes_the_place_of_its_new_priority(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    gauge = Gauge(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[gauge.domain], shutdown_grace=0, max_concurrency=1)
    handles = [await gauge.task.submit(name) for name in "abcd"]
    async with scheduler.running():
        await manual_clock.advance(1)
        await scheduler.set_priority(handles[3].id, Priority.HIGH)
        await scheduler.set_priority(handles[1].id, 200)
        await manual_clock.advance(60)
    assert gauge.order == ["a", "d", "c", "b"]


async def test_the_priority_of_what_waits_otherwise_is_set_too(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    gauge = Gauge(manual_clock)
    scheduler = await taskmill_scheduler(domains=[gauge.domain], shutdown_grace=0, max_concurrency=1)
    first = await gauge.task.submit("first")
    blocked = await gauge.task.options(depends_on=[first]).submit("blocked")
    scheduled = await gauge.task.options(run_after=5).submit("scheduled")
    await scheduler.group("g").pause()
    paused = await gauge.task.options(group="g").submit("paused")
    other = await gauge.task.submit("other")
    for handle, priority in ((blocked, 10), (scheduled, 20), (paused, 30)):
        await scheduler.set_priority(handle.id, priority)
    records = [await active(scheduler, handle.id) for handle in (blocked, scheduled, paused, first)]
    assert [record.priority for record in records] == [10, 20, 30, 128]
    assert [record.status for record in records] == ["blocked", "scheduled", "paused", "pending"]
    assert records[3].effective_priority == 10, "a more urgent task waits for it"
    async with scheduler.running():
        await manual_clock.advance(6)
        await scheduler.group("g").resume()
        await manual_clock.advance(60)
    assert gauge.order == ["first", "blocked", "scheduled", "paused", "other"]
    assert other.id > paused.id


async def test_the_priority_of_a_running_task_counts_when_it_runs_again(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    order: list[str] = []

    @domain.task(retry=Retry.constant(1, 0))
    async def work(name: str) -> None:
        order.append(name)
        await manual_clock.sleep(10)
        if name == "fails" and order.count("fails") == 1:
            raise ValueError

    scheduler = await taskmill_scheduler(domains=[domain], shutdown_grace=0, max_concurrency=1)
    failing = await work.submit("fails")
    await work.submit("other")
    async with scheduler.running():
        await manual_clock.advance(1)
        await scheduler.set_priority(failing.id, 200)
        record = await active(scheduler, failing.id)
        await manual_clock.advance(60)
    assert (record.status, record.priority, record.effective_priority) == ("running", 200, 200)
    assert order == ["fails", "other", "fails"]


async def test_the_priority_of_what_is_over_cannot_be_set(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> None:
        await asyncio.Event().wait()

    @work.on_cancel
    async def undo() -> None:
        await manual_clock.sleep(10)

    scheduler = await taskmill_scheduler(domains=[domain], shutdown_grace=0)
    ended = await work.submit()
    await ended.cancel()
    with pytest.raises(InvalidState, match="cancelled"):
        await scheduler.set_priority(ended.id, 5)
    with pytest.raises(TaskNotFound, match="999"):
        await scheduler.set_priority(999, 5)
    stopping = await work.submit()
    async with scheduler.running():
        await manual_clock.advance(1)
        await stopping.cancel()
        await manual_clock.advance(1)
        with pytest.raises(InvalidState, match="being stopped"):
            await scheduler.set_priority(stopping.id, 5)
        await manual_clock.advance(20)
    assert await endings(scheduler) == [(ended.id, "cancelled"), (stopping.id, "cancelled")]


# Cancelling many


async def test_tasks_are_cancelled_by_what_they_have_in_common(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    one, two = Gauge(manual_clock, "one"), Gauge(manual_clock, "two")
    scheduler = await taskmill_scheduler(
        store=any_store, domains=[one.domain, two.domain], shutdown_grace=0, max_concurrency=1
    )

    async def submit(gauge: Gauge, **options: Any) -> int:
        return (await gauge.task.options(**options).submit()).id

    by_group = [await submit(one, group="g"), await submit(two, group="g")]
    by_tag = [await submit(one, tags={"user": "ann"}), await submit(two, tags={"user": "ann", "x": "y"})]
    both = await submit(two, group="h", tags={"user": "bob"})
    by_type = [await submit(one), await submit(one, run_after=60)]
    left = await submit(two)
    await scheduler.group("g").pause()
    async with scheduler.running():
        await manual_clock.advance(1)
        assert await scheduler.cancel_where(group="g") == by_group, "paused ones too"
        assert await scheduler.cancel_where(tags={"user": "ann"}) == by_tag, "the running one too"
        await manual_clock.advance(0)
        assert await scheduler.cancel_where(group="h", tags={"user": "ann"}) == []
        assert await scheduler.cancel_where(group="h", tags={"user": "bob"}) == [both]
        assert await scheduler.cancel_where(domain="one", type="one::work") == by_type
        await manual_clock.advance(0)
        assert await scheduler.cancel_where(domain="one") == []
        await manual_clock.advance(60)
    found = dict(await endings(scheduler))
    assert found.pop(left) == "completed"
    assert set(found.values()) == {"cancelled"}
    assert len(found) == 7


async def test_paused_tasks_can_be_cancelled_as_such(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    gauge = Gauge(manual_clock)
    scheduler = await taskmill_scheduler(domains=[gauge.domain])
    await scheduler.group("g").pause()
    paused = [(await gauge.task.options(group="g").submit()).id for _ in range(3)]
    await gauge.task.submit()
    assert await scheduler.cancel_where(status="paused") == paused
    assert await scheduler.count() == 1
