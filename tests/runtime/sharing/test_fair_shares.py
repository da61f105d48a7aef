"""Groups that share the slots of a real scheduler, on the manual clock."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from taskmill import Aging, Context, Domain, Group, Priority, RateLimit, Scheduler
from taskmill.events import Event, GroupAllocationChanged
from taskmill.model.cluster import Demand
from taskmill.observe.bus import Listener
from taskmill.policy.shares import allocate
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


class Works:
    """A domain whose tasks take a given number of seconds, with the counts of running and waiting tasks."""

    def __init__(self, clock: ManualClock) -> None:
        self.domain = Domain("works")
        self.running: Counter[str] = Counter()
        self.waiting: Counter[str] = Counter()
        self.waits: dict[int, timedelta] = {}
        self.order: list[int] = []
        self.started: Counter[str] = Counter()

        @self.domain.task
        async def job(ctx: Context, seconds: float) -> None:
            group = ctx.task.group
            self.started[group] += 1
            self.waiting[group] -= 1
            self.running[group] += 1
            self.waits[ctx.task.id] = clock.now() - ctx.task.created_at
            self.order.append(ctx.task.id)
            try:
                await clock.sleep(seconds)
            finally:
                self.running[group] -= 1

        self.job = job

    async def submit(
        self, scheduler: Scheduler, group: str, count: int = 1, priority: int = Priority.NORMAL, seconds: float = 1
    ) -> list[int]:
        task = self.job.options(group=group, priority=priority)
        # Counted first: a task may start before the call returns.
        self.waiting[group] += count
        many = [task.prepare(seconds if seconds else 1 + n % 3) for n in range(count)]
        return [handle.id for handle in await scheduler.submit_many(many)]

    def targets(self, slots: int, groups: dict[str, Group]) -> dict[str, int]:
        claims = {}
        for name in {*self.running, *self.waiting}:
            group = groups.get(name, Group())
            claims[name] = Demand(self.running[name], self.waiting[name], group.weight, group.cap, group.min_slots)
        return {name: share.slots for name, share in allocate(slots, claims).items()}


@pytest.fixture
def works(manual_clock: ManualClock) -> Works:
    return Works(manual_clock)


def heard(events: Listener[Any]) -> list[tuple[Any, ...]]:
    """Return the events since the last call."""
    found: list[Event] = []
    while events._events:
        found.append(events._events.popleft())
    return [
        (event.group, event.previous_slots, event.new_slots, event.reason)
        for event in found
        if isinstance(event, GroupAllocationChanged)
    ]


@pytest.mark.parametrize(("store", "backlog"), [(":memory:", 20_000), ("file", 5_000)])
async def test_a_huge_backlog_and_a_stream_of_urgent_tasks_starve_neither_backup_nor_maintenance(
    taskmill_scheduler: SchedulerFactory,
    manual_clock: ManualClock,
    works: Works,
    store: str,
    backlog: int,
    tmp_path: Any,
) -> None:
    groups = {"s3://prod": Group(weight=3), "s3://backup": Group(weight=1, min_slots=2)}
    scheduler = await taskmill_scheduler(
        store=store if store == ":memory:" else str(tmp_path / "tasks.db"),
        domains=[works.domain],
        max_concurrency=16,
        groups=groups,
        aging=Aging(grace=30, interval=1, step=4),
        durability="process",
    )
    off_target: list[tuple[int, dict[str, int], Counter[str]]] = []
    idle: list[int] = []
    low_started: list[int] = []
    await works.submit(scheduler, "s3://prod", backlog, Priority.LOW, seconds=0)
    await works.submit(scheduler, "s3://backup", 200, Priority.LOW, seconds=0)
    await works.submit(scheduler, "maintenance", 5, Priority.LOW, seconds=0)
    async with scheduler.running():
        for second in range(90):
            if second % 10 == 0:
                await works.submit(scheduler, "s3://prod", 50, Priority.HIGH)
            await manual_clock.advance(1)
            targets = works.targets(16, groups)
            if any(abs(works.running[name] - target) > 1 for name, target in targets.items()):
                off_target.append((second, targets, works.running.copy()))
            if works.running.total() != 16:
                idle.append(second)
            if second == 20:
                low_started.append(works.started["s3://prod"])
        await scheduler.pause()
        await manual_clock.advance(5)
    assert off_target == []
    assert idle == []
    assert works.waiting["maintenance"] == 0
    assert works.waiting["s3://backup"] < 40
    assert low_started[0] > 150  # more than the urgent ones alone


async def test_a_lent_slot_is_returned_at_the_next_free_slot(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, works: Works
) -> None:
    scheduler = await taskmill_scheduler(
        domains=[works.domain], max_concurrency=4, groups={"a": Group(weight=3), "b": Group(weight=1)}
    )
    seen: list[dict[str, int]] = []
    await works.submit(scheduler, "b", 100)
    async with scheduler.running():
        for lent, come in enumerate([0, 100, 0, 0]):
            if come:
                # Half a second before the slots are free: running tasks are not interrupted.
                await works.submit(scheduler, "a", come)
                await manual_clock.advance(0)
                seen.append(dict(works.running))
            await manual_clock.advance(0.5 if lent == 0 else 1)
            seen.append(dict(works.running))
        await scheduler.pause()
        await manual_clock.advance(5)
    assert seen[:2] == [{"b": 4}, {"b": 4}]
    assert seen[2:] == [{"b": 1, "a": 3}] * 3


async def test_changes_of_weight_cap_and_minimum_act_at_the_next_free_slot(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, works: Works
) -> None:
    scheduler = await taskmill_scheduler(
        domains=[works.domain], max_concurrency=8, groups={"a": Group(weight=3), "b": Group(weight=1)}
    )
    seen: list[tuple[int, int]] = []
    await works.submit(scheduler, "a", 500)
    await works.submit(scheduler, "b", 500)
    async with scheduler.running():

        async def now_and_then() -> None:
            await manual_clock.advance(0)
            seen.append((works.running["a"], works.running["b"]))
            await manual_clock.advance(1)
            seen.append((works.running["a"], works.running["b"]))

        await now_and_then()
        await scheduler.group("b").set(weight=3)
        await now_and_then()
        await scheduler.group("a").set(cap=2)
        await now_and_then()
        await scheduler.group("a").set(cap=None)
        await now_and_then()
        await scheduler.group("a").set(min_slots=4)
        await now_and_then()
        await scheduler.reset_group_weights()
        await now_and_then()
        await scheduler.pause()
        await manual_clock.advance(5)
    assert seen == [(6, 2), (6, 2), (6, 2), (4, 4), (4, 4), (2, 6), (2, 6), (4, 4), (4, 4), (6, 2), (6, 2), (6, 2)]


async def test_with_weights_and_minimums_gone_priority_is_global_again(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, works: Works
) -> None:
    scheduler = await taskmill_scheduler(domains=[works.domain], max_concurrency=4)
    seen: list[dict[str, int]] = []
    await works.submit(scheduler, "urgent", 40, Priority.HIGH)
    await works.submit(scheduler, "calm", 40, Priority.LOW)
    await scheduler.group("calm").set(weight=3)
    async with scheduler.running():
        await manual_clock.advance(1.5)
        seen.append(dict(+works.running))
        await scheduler.reset_group_weights()
        await manual_clock.advance(1)
        seen.append(dict(+works.running))
        await scheduler.group("calm").set(weight=3)
        await manual_clock.advance(1)
        seen.append(dict(+works.running))
        await scheduler.pause()
        await manual_clock.advance(5)
    assert seen == [{"urgent": 1, "calm": 3}, {"urgent": 4}, {"urgent": 1, "calm": 3}]


async def test_paused_capped_and_rated_groups_lend_their_slots_at_once_and_get_them_back(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, works: Works
) -> None:
    scheduler = await taskmill_scheduler(
        domains=[works.domain], max_concurrency=8, groups={"a": Group(weight=3), "b": Group(weight=1)}
    )
    seen: list[tuple[int, int]] = []
    await works.submit(scheduler, "a", 500)
    await works.submit(scheduler, "b", 500)
    async with scheduler.running():

        async def after(seconds: float) -> None:
            await manual_clock.advance(seconds)
            seen.append((works.running["a"], works.running["b"]))

        await after(0.5)
        await scheduler.group("a").pause(duration=2.5)
        await after(1)
        await after(1.4)
        await after(0.6)
        await scheduler.group("a").set(rate=RateLimit(1, 10, burst=2))
        await after(1)
        await after(1)
        await scheduler.pause()
        await manual_clock.advance(5)
    assert seen == [(6, 2), (0, 8), (0, 8), (6, 2), (2, 6), (0, 8)]


async def test_announced_allocations_are_those_that_hold_each_with_its_reason(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, works: Works
) -> None:
    scheduler = await taskmill_scheduler(
        domains=[works.domain], max_concurrency=4, groups={"a": Group(weight=3), "b": Group(weight=1)}
    )
    events = scheduler.events(GroupAllocationChanged)
    told: list[list[tuple[Any, ...]]] = []
    async with scheduler.running():

        async def after(seconds: float) -> None:
            await manual_clock.advance(seconds)
            told.append(sorted(heard(events)))

        await after(0)
        await works.submit(scheduler, "a", 10, seconds=10)
        await after(0)
        await works.submit(scheduler, "b", 2, seconds=20)
        await after(0)
        await scheduler.group("b").set(weight=3)
        await after(0)
        await scheduler.group("b").set(weight=1)
        await after(0)
        await after(10)
        await after(10)
        await after(10)
        await after(10)
        slots = {name: group.slots for name, group in (await scheduler.snapshot()).groups.items()}
        await manual_clock.advance(100)
    assert told[:5] == [
        [],
        [("a", 0, 4, "rebalance")],
        [("a", 4, 3, "rebalance"), ("b", 0, 1, "rebalance")],
        [("a", 3, 2, "weight_change"), ("b", 1, 2, "weight_change")],
        [("a", 2, 3, "weight_change"), ("b", 2, 1, "weight_change")],
    ]
    held: Counter[str] = Counter()
    for group, previous, new, _ in (each for batch in told for each in batch):
        assert held[group] == previous
        held[group] = new
    assert +held == +Counter(slots)


async def test_a_group_that_runs_dry_tells_so_and_the_others_that_they_were_rebalanced(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, works: Works
) -> None:
    scheduler = await taskmill_scheduler(domains=[works.domain], max_concurrency=4, groups={"a": Group(weight=3)})
    events = scheduler.events(GroupAllocationChanged)
    async with scheduler.running():
        await works.submit(scheduler, "a", 3, seconds=1)
        await works.submit(scheduler, "b", 10, seconds=10)
        await manual_clock.advance(0)
        heard(events)
        await manual_clock.advance(1)
        told = sorted(heard(events))
        await manual_clock.advance(100)
    assert told == [("a", 3, 0, "group_drained"), ("b", 1, 4, "rebalance")]


async def test_a_backlog_on_disk_that_is_read_again_changes_no_allocation(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, works: Works
) -> None:
    scheduler = await taskmill_scheduler(
        domains=[works.domain], max_concurrency=8, groups={"a": Group(weight=3), "b": Group(weight=1)}
    )
    await works.submit(scheduler, "a", 3000)
    await works.submit(scheduler, "b", 3000)
    events = scheduler.events(GroupAllocationChanged)
    async with scheduler.running():
        await manual_clock.advance(0)
        heard(events)
        await manual_clock.advance(200)
        ids = await works.submit(scheduler, "a", 1, Priority.HIGH)
        await scheduler.set_priority(ids[0], 3)
        await manual_clock.advance(10)
        told = heard(events)
        await scheduler.pause()
        await manual_clock.advance(5)
        heard(events)
    assert told == []
    assert works.started["a"] > 1000
