"""Tasks of a real scheduler become more urgent as they wait, on the manual clock."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from taskmill import Aging, Context, Domain, Group, Priority, Retry, RetryLater, Scheduler, TaskRecord
from taskmill.events import TaskDispatched, TaskEvent
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.records import active, ended

AGING = Aging(grace=10, interval=1, step=2, ceiling=64, urgent=64)


class Shop:
    """A domain with a task that runs until the test releases it, tasks that take a second or fail, and all starts."""

    def __init__(self, clock: ManualClock) -> None:
        self.domain = domain = Domain("shop")
        self.starts: list[tuple[int, int, timedelta]] = []
        self.let_go = asyncio.Event()
        self.spawned: list[int] = []

        @domain.task
        async def hold() -> None:
            await self.let_go.wait()

        @domain.task
        async def quick(ctx: Context) -> None:
            self._note(ctx, clock)
            await clock.sleep(1)

        @domain.task(retry=Retry.constant(2, delay=5))
        async def failing(ctx: Context) -> None:
            self._note(ctx, clock)
            raise RetryLater("not yet")

        @domain.task(key=lambda name: name, on_duplicate="supersede")
        async def keyed(ctx: Context, name: str) -> None:
            self._note(ctx, clock)

        @domain.task
        async def parent(ctx: Context) -> None:
            self._note(ctx, clock)
            self.spawned.append((await ctx.spawn(quick.prepare())).id)
            self.spawned.append((await ctx.spawn(quick.options(priority=Priority.CRITICAL).prepare())).id)

        self.hold, self.quick, self.failing, self.keyed, self.parent = hold, quick, failing, keyed, parent

    def _note(self, ctx: Context, clock: ManualClock) -> None:
        self.starts.append((ctx.task.id, ctx.task.effective_priority, clock.now() - ctx.task.created_at))

    @property
    def order(self) -> list[int]:
        return [id for id, _, _ in self.starts]


@pytest.fixture
def shop(manual_clock: ManualClock) -> Shop:
    return Shop(manual_clock)


async def views(scheduler: Scheduler, id: int) -> set[int]:
    """Return the effective priority of a waiting task in all views; one value if they agree."""
    record, listed = await active(scheduler, id), await scheduler.tasks(status="pending")
    explained = await scheduler.explain(id)
    snapshot = (await scheduler.snapshot()).groups[record.group].next_priority
    found = {record.effective_priority, explained.effective_priority}
    found |= {each.effective_priority for each in listed if each.id == id}
    return found | ({snapshot} if snapshot is not None else set())


MOMENTS = [*range(1, 15), *range(20, 131, 5)]
"""Seconds at which to check: each one around the end of the grace time, then one in five."""


@pytest.mark.parametrize("base", [0, 63, 64, 65, 128, 192, 255])
async def test_effective_priority_only_grows_never_past_the_ceiling_and_all_views_agree(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, shop: Shop, base: int
) -> None:
    scheduler = await taskmill_scheduler(domains=[shop.domain], max_concurrency=1, aging=AGING, preempt_at=None)
    seen: list[int] = []
    stored: set[int] = set()
    dispatched = scheduler.events(TaskDispatched, type="shop::quick")
    async with scheduler.running():
        await shop.hold.options(priority=0).submit()
        await manual_clock.advance(0)
        handle = await shop.quick.options(priority=base).submit()
        for before, waited in pairwise([0, *MOMENTS]):
            await manual_clock.advance(waited - before)
            (effective,) = await views(scheduler, handle.id)
            seen.append(effective)
            stored.add((await active(scheduler, handle.id)).priority)
        shop.let_go.set()
        await manual_clock.advance(0)
        event = dispatched._events.popleft()
        (at_work,) = (await scheduler.snapshot()).running
        await manual_clock.advance(2)
    assert stored == {base}
    assert seen == [max(base - 2 * max(waited - 10, 0), min(base, 64)) for waited in MOMENTS]
    assert isinstance(event, TaskDispatched)
    assert {event.effective_priority, at_work.effective_priority, shop.starts[0][1]} == {seen[-1]}
    assert event.base_priority == base
    assert (await ended(scheduler, handle.id)).priority == base


async def test_a_retry_continues_aging_and_a_new_submission_does_not(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, shop: Shop
) -> None:
    scheduler = await taskmill_scheduler(domains=[shop.domain], aging=AGING)
    async with scheduler.running():
        handle = await shop.failing.submit()
        await manual_clock.advance(20)
        again = await shop.failing.submit()
        await manual_clock.advance(0)
    assert [(id, effective) for id, effective, _ in shop.starts] == [
        (handle.id, 128),
        (handle.id, 128),
        (handle.id, 128),
        (again.id, 128),
    ]
    async with scheduler.running():
        await manual_clock.advance(7)
        slow = await shop.failing.options(retry=Retry.constant(1, delay=30)).submit()
        await manual_clock.advance(30)
    assert [effective for id, effective, _ in shop.starts if id == slow.id] == [128, 128 - 2 * 20]


async def test_a_replacement_keeps_the_place_and_ages_anew(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, shop: Shop
) -> None:
    scheduler = await taskmill_scheduler(domains=[shop.domain], max_concurrency=1, aging=AGING, preempt_at=None)
    effective: list[int] = []
    async with scheduler.running():
        await shop.hold.options(priority=0).submit()
        await manual_clock.advance(0)
        old = await shop.keyed.submit("one")
        await manual_clock.advance(1)
        other = await shop.quick.submit()
        await manual_clock.advance(1)
        new = await shop.keyed.submit("one")
        effective += [(await active(scheduler, id)).effective_priority for id in (other.id, new.id)]
        shop.let_go.set()
        await manual_clock.advance(5)
        shop.let_go.clear()
        await shop.hold.options(priority=0).submit()
        await manual_clock.advance(0)
        aged = await shop.keyed.submit("two")
        await manual_clock.advance(30)
        effective.append((await active(scheduler, aged.id)).effective_priority)
        anew = await shop.keyed.submit("two")
        effective += await views(scheduler, anew.id)
        await manual_clock.advance(11)
        effective += await views(scheduler, anew.id)
        shop.let_go.set()
        await manual_clock.advance(5)
    assert old.id not in shop.order
    assert shop.order[:2] == [new.id, other.id]
    assert effective == [128, 128, 128 - 2 * 20, 128, 126]


async def test_each_occurrence_of_a_series_ages_anew(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, shop: Shop
) -> None:
    scheduler = await taskmill_scheduler(domains=[shop.domain], max_concurrency=1, aging=AGING, preempt_at=None)
    async with scheduler.running():
        await shop.hold.options(priority=0).submit()
        await manual_clock.advance(0)
        await shop.quick.options(every=60).submit()
        await manual_clock.advance(30)
        shop.let_go.set()
        await manual_clock.advance(91)
    assert [effective for _, effective, _ in shop.starts] == [128 - 2 * 20, 128, 128]


async def test_children_inherit_what_their_parent_had_become_or_are_more_urgent_themselves(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, shop: Shop
) -> None:
    scheduler = await taskmill_scheduler(domains=[shop.domain], max_concurrency=1, aging=AGING, preempt_at=None)
    async with scheduler.running():
        await shop.hold.options(priority=0).submit()
        await manual_clock.advance(0)
        parent = await shop.parent.submit()
        await manual_clock.advance(30)
        shop.let_go.set()
        await manual_clock.advance(5)
    by_id = {id: effective for id, effective, _ in shop.starts}
    assert by_id[parent.id] == 88
    assert [by_id[id] for id in shop.spawned] == [88, 0]


@pytest.mark.parametrize("scope", ["scheduler", "domain", "group", "nested"])
async def test_a_pause_freezes_aging(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, shop: Shop, scope: str
) -> None:
    scheduler = await taskmill_scheduler(domains=[shop.domain], max_concurrency=1, aging=AGING, preempt_at=None)
    verbs: dict[str, Any] = {
        "scheduler": scheduler,
        "domain": scheduler.domain("shop"),
        "group": scheduler.group("g"),
    }
    seen: list[set[int]] = []
    async with scheduler.running():
        await shop.hold.options(priority=0).submit()
        await manual_clock.advance(0)
        handle = await shop.quick.options(group="g").submit()
        await manual_clock.advance(15)
        for each in verbs if scope == "nested" else [scope]:
            await verbs[each].pause()
            await manual_clock.advance(7)
        await manual_clock.advance(100)
        record, told = await active(scheduler, handle.id), await scheduler.explain(handle.id)
        seen.append({record.effective_priority, told.effective_priority})
        for each in verbs if scope == "nested" else [scope]:
            await verbs[each].resume()
            await manual_clock.advance(3 if scope == "nested" and each != "group" else 0)
        seen.append(await views(scheduler, handle.id))
        await manual_clock.advance(5)
        seen.append(await views(scheduler, handle.id))
        shop.let_go.set()
        await manual_clock.advance(5)
    assert seen == [{118}, {118}, {108}]


@pytest.mark.parametrize("groups", [{}, {"loud": Group(weight=100), "quiet": Group(weight=1)}])
@pytest.mark.parametrize("where", ["loud", "quiet"])
async def test_no_stream_of_fresher_more_urgent_tasks_keeps_one_waiting_longer_than_max_wait(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, shop: Shop, groups: dict[str, Group], where: str
) -> None:
    """Each second more tasks arrive than can run, all more urgent than the ceiling: only the urgent level helps."""
    scheduler = await taskmill_scheduler(
        domains=[shop.domain], max_concurrency=2, aging=AGING, groups=groups, preempt_at=None
    )
    bound = scheduler.max_wait(Priority.LOW)
    assert bound == timedelta(seconds=10 + 64)
    async with scheduler.running():
        await shop.quick.options(group="loud", priority=65).submit()
        victim = await shop.quick.options(group=where, priority=Priority.LOW).submit()
        for _ in range(90):
            many = [shop.quick.options(group=group, priority=65).prepare() for group in ("loud", "loud", "loud")]
            await scheduler.submit_many(many)
            await manual_clock.advance(1)
        await scheduler.pause()
        await manual_clock.advance(5)
    (waited,) = [waited for id, _, waited in shop.starts if id == victim.id]
    # The stream itself becomes urgent after 11 s, so the task that has waited longest is first among the urgent.
    assert waited <= bound + timedelta(seconds=1)


async def test_events_about_a_waiting_task_give_what_its_record_gives(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, shop: Shop
) -> None:
    scheduler = await taskmill_scheduler(domains=[shop.domain], max_concurrency=1, aging=AGING, preempt_at=None)
    events = scheduler.events(type="shop::quick")
    async with scheduler.running():
        await shop.hold.options(priority=0).submit()
        handle = await shop.quick.submit()
        await manual_clock.advance(25)
        record = await scheduler.get(handle.id)
        await handle.cancel()
        shop.let_go.set()
        await manual_clock.advance(0)
    told = [event for event in events._events if isinstance(event, TaskEvent)]
    assert isinstance(record, TaskRecord)
    assert [(event.base_priority, event.effective_priority) for event in (told[0], told[-1])] == [(128, 128), (128, 98)]
    assert record.effective_priority == 98
