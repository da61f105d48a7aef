"""Spawning: siblings, refusals, inherited options, and the number of children in the queue."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from taskmill import Context, CyclicDependency, Domain, InvalidState, SubmissionError
from taskmill.model.records import TaskRecord
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.records import ended


async def test_a_sibling_has_the_same_parent_and_the_parent_waits_for_it(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task
    async def part(ctx: Context, n: int) -> int:
        if n:
            sibling = await ctx.spawn_sibling(part.prepare(n - 1))
            assert sibling.kind == "inserted"
        return n

    @domain.task
    async def whole(ctx: Context) -> None:
        await ctx.spawn(part.prepare(3))

    @whole.finalize
    async def finish(ctx: Context) -> list[int]:
        return [child.result for child in ctx.children]

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await whole.submit()
    alone = await part.submit(1)
    await scheduler.run_until_idle()
    assert (await handle.wait()).result == [3, 2, 1, 0]
    assert (await ended(scheduler, alone.id)).parent_id is None
    assert [record.parent_id for record in await scheduler.history(type="d::part")].count(None) == 2


async def test_spawning_from_an_attempt_that_is_over_stores_nothing(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")
    kept: list[Context] = []

    @domain.task
    async def whole(ctx: Context) -> None:
        kept.append(ctx)

    scheduler = await taskmill_scheduler(domains=[domain])
    await whole.submit()
    await scheduler.run_until_idle()
    with pytest.raises(InvalidState, match="is over; nothing was spawned"):
        await kept[0].spawn(whole.prepare())
    assert await scheduler.tasks() == []


async def test_a_refused_spawn_stores_nothing_and_the_parent_just_completes(
    taskmill_scheduler: SchedulerFactory,
) -> None:
    domain = Domain("d")
    finalized: list[bool] = []

    @domain.task
    async def whole(ctx: Context) -> str:
        with pytest.raises(SubmissionError, match="a child cannot recur"):
            await ctx.spawn(whole.options(every=5).prepare())
        with pytest.raises(CyclicDependency):
            await ctx.spawn(whole.options(depends_on=ctx.task.id).prepare())
        for odd in (5, None, ["x"]):
            with pytest.raises(SubmissionError, match="submissions must be"):
                await ctx.spawn_many(odd)  # type: ignore[arg-type]
        return "alone"

    @whole.finalize
    async def finish(ctx: Context) -> None:
        finalized.append(True)

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await whole.submit()
    await scheduler.run_until_idle()
    assert (await handle.wait()).result == "alone"
    assert finalized == []
    assert await scheduler.count(status="completed") == 1


# Inheritance


async def test_children_inherit_tags_urgency_and_what_is_left_of_the_time_to_live(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    seen: dict[str, TaskRecord] = {}

    @domain.task
    async def part(ctx: Context, name: str) -> None:
        seen[name] = ctx.task

    @domain.task(ttl=5)
    async def short(ctx: Context, name: str) -> None:
        seen[name] = ctx.task

    @domain.task(ttl=100, tags={"a": "parent", "b": "parent"}, priority=64)
    async def whole(ctx: Context) -> None:
        await ctx.spawn_many(
            [
                part.prepare("plain"),
                part.options(tags={"b": "own"}, priority=10, ttl=3).prepare("own"),
                part.options(ttl=None).prepare("free"),
                short.prepare("short"),
            ]
        )

    scheduler = await taskmill_scheduler(domains=[domain], default_ttl=7)
    handle = await whole.submit()
    await manual_clock.advance(40)
    await scheduler.run_until_idle()
    deadline = (await ended(scheduler, handle.id)).expires_at
    assert {name: dict(task.tags) for name, task in seen.items()} == {
        "plain": {"a": "parent", "b": "parent"},
        "own": {"a": "parent", "b": "own"},
        "free": {"a": "parent", "b": "parent"},
        "short": {"a": "parent", "b": "parent"},
    }
    assert {name: task.priority for name, task in seen.items()} == {"plain": 64, "own": 10, "free": 64, "short": 64}
    assert seen["plain"].expires_at == deadline
    assert seen["free"].expires_at is None
    left = {name: (task.expires_at - task.created_at).total_seconds() for name, task in seen.items() if task.expires_at}
    assert left == {"plain": 60, "own": 3, "short": 5}


async def test_a_child_of_a_boosted_parent_is_as_urgent_as_what_waits_for_its_parent(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    order: list[str] = []

    @domain.task
    async def step(name: str) -> None:
        order.append(name)

    @domain.task(priority=200)
    async def whole(ctx: Context) -> None:
        await ctx.spawn(step.options(priority=250).prepare("child"))

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
    slow = await whole.submit()
    urgent = await step.options(priority=1, depends_on=slow).submit("urgent")
    await scheduler.submit_many(step.options(priority=100).prepare(f"other {n}") for n in range(3))
    await scheduler.run_until_idle()
    assert order == ["child", "urgent", "other 0", "other 1", "other 2"]
    assert (await ended(scheduler, urgent.id)).ending == "completed"


# Limits


async def test_only_so_many_children_of_one_parent_are_let_in_at_once(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d")
    at_work: dict[int, int] = {}
    most: dict[int, int] = {}
    looked = defaultdict[int, asyncio.Event](asyncio.Event)

    @domain.task
    async def part(ctx: Context, n: int) -> None:
        parent = ctx.task.parent_id or 0
        at_work[parent] = at_work.get(parent, 0) + 1
        most[parent] = max(most.get(parent, 0), at_work[parent])
        await looked[parent].wait()
        await asyncio.sleep(0)
        at_work[parent] -= 1

    @domain.task(max_children=3)
    async def whole(ctx: Context) -> None:
        await ctx.spawn_many(part.prepare(n) for n in range(20))
        counts = (await scheduler.snapshot()).counts
        looked[ctx.task.id].set()
        assert counts["blocked"] > 0

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=16)
    handles = await scheduler.submit_many(whole.prepare() for _ in range(2))
    await scheduler.run_until_idle()
    assert most == {handle.id: 3 for handle in handles}
    assert await scheduler.count(status="completed") == 42
