"""Urgent work preempts less urgent tasks: which are chosen, and for which."""

from __future__ import annotations

import asyncio

import pytest

from taskmill import Aging, Context, Domain, Group, Priority, Scheduler
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.preempting.work import Work
from tests.runtime.records import active


async def test_of_equals_the_youngest_is_preempted(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=3)
    async with scheduler.running():
        for name in ("old", "middle", "young"):
            await work.task.submit(name)
            await manual_clock.advance(1)
        await work.task.options(priority=0).submit("critical", 1)
        await manual_clock.advance(20)
    assert [name for name, _ in work.of("stop")] == ["young"]


@pytest.mark.parametrize(
    ("running", "urgent", "makes_way"), [(0, 0, False), (5, 5, False), (5, 4, False), (6, 5, True)]
)
async def test_no_task_is_preempted_for_one_that_is_not_more_urgent(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, running: int, urgent: int, makes_way: bool
) -> None:
    work = Work(manual_clock)
    line = 5 if makes_way or running == urgent else 3
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1, preempt_at=line)
    await work.task.options(priority=running).submit("running")
    async with scheduler.running():
        await manual_clock.advance(1)
        await work.task.options(priority=urgent).submit("urgent")
        await manual_clock.advance(30)
    assert bool(work.of("stop")) == makes_way
    assert len(work.of("end")) == 2


async def test_without_a_line_nothing_preempts(taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1, preempt_at=None)
    await work.task.options(priority=Priority.IDLE).submit("idle")
    async with scheduler.running():
        await manual_clock.advance(1)
        await work.task.options(priority=Priority.CRITICAL).submit("critical")
        await manual_clock.advance(30)
    assert work.of("stop") == []
    assert work.of("start") == [("idle", 0), ("critical", 10)]


async def test_a_free_slot_is_taken_before_a_task_is_preempted(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=3)
    await work.task.submit("one")
    await work.task.submit("two")
    async with scheduler.running():
        await manual_clock.advance(1)
        await scheduler.submit_many([work.task.options(priority=0).prepare(f"critical {n}") for n in range(2)])
        await manual_clock.advance(1)
        stopped = work.of("stop")
    assert stopped == [("two", 1)], "one slot was free, one had to be freed"


async def test_a_task_whose_priority_is_raised_preempts(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    running = await work.task.options(priority=200).submit("running")
    waiting = await work.task.options(priority=200).submit("waiting", 2)
    async with scheduler.running():
        await manual_clock.advance(1)
        await scheduler.set_priority(waiting.id, Priority.CRITICAL)
        await manual_clock.advance(1)
        assert (await active(scheduler, running.id)).status == "paused"
        await manual_clock.advance(30)
    assert work.of("start") == [("running", 0), ("waiting", 1), ("running", 3)]


async def test_a_running_task_whose_priority_is_raised_is_not_preempted(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    running = await work.task.options(priority=200).submit("running")
    async with scheduler.running():
        await manual_clock.advance(1)
        await scheduler.set_priority(running.id, Priority.CRITICAL)
        await work.task.options(priority=0).submit("critical", 2)
        await manual_clock.advance(30)
    assert work.of("stop") == []


async def test_a_task_that_has_aged_to_the_line_preempts(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(
        domains=[work.domain],
        shutdown_grace=0,
        max_concurrency=1,
        preempt_at=100,
        aging=Aging(grace=0, interval=1, step=7, ceiling=100, urgent=100),
    )
    await work.task.options(priority=200).submit("running", 60)
    async with scheduler.running():
        await manual_clock.advance(1)
        await work.task.options(priority=128).submit("ages", 2)
        await manual_clock.advance(3.999)
        before = work.of("stop")
        await manual_clock.advance(0.001)
        stopped = work.of("stop")
    assert (before, stopped) == ([], [("running", 5)])


async def test_shares_do_not_hold_back_a_preemptor(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(
        domains=[work.domain], shutdown_grace=0, max_concurrency=2, groups={"a": Group(weight=9), "b": Group(weight=1)}
    )
    for n in range(4):
        await work.task.options(group="a").submit(f"a {n}", 5)
    await work.task.options(group="b").submit("b", 5)
    async with scheduler.running():
        await manual_clock.advance(1)
        await work.task.options(group="b", priority=0).submit("critical", 1)
        await manual_clock.advance(0)
        started = [name for name, _ in work.of("start")]
    assert "critical" in started


# A preemptor that cannot start preempts no task


async def _crowd(scheduler: Scheduler, work: Work, clock: ManualClock) -> None:
    await scheduler.submit_many([work.task.options(priority=200).prepare(f"low {n}", 50) for n in range(3)])
    await clock.advance(1)


@pytest.mark.parametrize(
    ("limit", "starts"),
    [("scheduler", 0), ("domain", 0), ("group", 0), ("cap", 1), ("domain cap", 1), ("rate", 1), ("type rate", 1)],
)
async def test_only_as_many_are_preempted_as_can_start(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, limit: str, starts: int
) -> None:
    from taskmill import RateLimit

    work = Work(manual_clock)
    urgent = Domain("u")
    log: list[float] = []

    @urgent.task
    async def critical() -> None:
        log.append(manual_clock.monotonic())
        await manual_clock.sleep(20)

    scheduler = await taskmill_scheduler(domains=[work.domain, urgent], shutdown_grace=0, max_concurrency=3)
    match limit:
        case "cap":
            await scheduler.group("g").set(cap=1)
        case "rate":
            await scheduler.group("g").set(rate=RateLimit(1, 1000))
        case "type rate":
            await scheduler.set_rate_limit("u::critical", RateLimit(1, 1000))
        case "domain cap":
            await scheduler.domain("u").set_max_concurrency(1)
    async with scheduler.running():
        await _crowd(scheduler, work, manual_clock)
        match limit:
            case "scheduler":
                await scheduler.pause()
            case "domain":
                await scheduler.domain("u").pause()
            case "group":
                await scheduler.group("g").pause()
        await scheduler.submit_many([critical.options(group="g", priority=0).prepare() for _ in range(3)])
        await manual_clock.advance(5)
        stopped, started = len(work.of("stop")), len(log)
        await scheduler.stop(0)
    assert (stopped, started) == (starts, starts)


@pytest.mark.parametrize("waiting", [1, 3])
async def test_an_urgent_task_of_a_type_that_is_short_preempts_at_once(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, waiting: int
) -> None:
    # Tasks of a type that ended at once so far are claimed before a slot is free. An urgent one would then wait for it.
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    async with scheduler.running():
        await work.task.submit("short", 0)
        await manual_clock.advance(0)
        await work.task.submit("long")
        await manual_clock.advance(0)
        urgent = [work.task.options(priority=0).prepare(f"urgent {n}", 1) for n in range(waiting)]
        await scheduler.submit_many(urgent)
        await manual_clock.advance(0)
        assert work.of("stop") == [("long", 0)]
        assert work.of("start")[-1] == ("urgent 0", 0)
        await manual_clock.advance(30)
    assert [name for name, _ in work.of("end")] == ["short", *(f"urgent {n}" for n in range(waiting)), "long"]


@pytest.mark.parametrize("raised", ["first", "second", None])
async def test_a_changed_priority_of_a_type_that_is_short_preempts_at_once(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, raised: str | None
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1, preempt_at=50)
    async with scheduler.running():
        await work.task.submit("short", 0)
        await manual_clock.advance(0)
        running = await work.task.options(priority=40).submit("running")
        await manual_clock.advance(0)
        waiting = {name: await work.task.options(priority=45).submit(name, 1) for name in ("first", "second")}
        await manual_clock.advance(0)
        if raised is None:
            await scheduler.set_priority(running.id, Priority.LOW)
        else:
            await scheduler.set_priority(waiting[raised].id, 0)
        await manual_clock.advance(0)
        assert work.of("stop") == [("running", 0)]
        assert work.of("start")[-1] == (raised or "first", 0)


@pytest.mark.parametrize("slots", [1, 2])
async def test_a_task_is_not_preempted_by_its_descendants(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, slots: int
) -> None:
    domain = Domain("d")
    runs: list[tuple[str, float]] = []

    def note(name: str) -> None:
        runs.append((name, manual_clock.monotonic()))

    @domain.task
    async def grandchild() -> None:
        note("grandchild")

    @domain.task
    async def child(ctx: Context) -> None:
        note("child")
        await ctx.spawn(grandchild.options(priority=Priority.CRITICAL).prepare())
        await manual_clock.sleep(2)

    @domain.task
    async def parent(ctx: Context) -> None:
        note("parent")
        await ctx.spawn(child.options(priority=Priority.CRITICAL).prepare())
        await manual_clock.sleep(10)

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=slots)
    handle = await parent.options(priority=Priority.IDLE).submit()
    async with scheduler.running():
        await manual_clock.advance(60)
    assert (await handle.record()).state == "completed"
    if slots == 1:
        assert runs == [("parent", 0), ("child", 10), ("grandchild", 12)]
    else:
        assert runs == [("parent", 0), ("child", 0), ("grandchild", 2)]


async def test_an_unrelated_urgent_task_preempts_a_parent(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    started: list[str] = []

    @domain.task
    async def child() -> None: ...

    @domain.task
    async def parent(ctx: Context) -> None:
        started.append(f"parent {ctx.attempt}")
        if ctx.attempt == 1:
            await ctx.spawn(child.options(priority=Priority.CRITICAL, run_after=3600).prepare())
            await asyncio.Event().wait()

    @domain.task
    async def urgent() -> None:
        started.append("urgent")

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
    async with scheduler.running():
        await parent.submit()
        await manual_clock.advance(0)
        await urgent.options(priority=Priority.CRITICAL).submit()
        await manual_clock.advance(0)
    assert started == ["parent 1", "urgent", "parent 2"]


async def test_parents_are_not_preempted_by_each_others_children(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    starts: list[str] = []

    @domain.task
    async def child() -> None:
        starts.append("child")

    @domain.task
    async def parent(ctx: Context) -> None:
        starts.append("parent")
        await ctx.spawn(child.options(priority=Priority.CRITICAL).prepare())
        await manual_clock.sleep(10)

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=2)
    handles = [await parent.submit(), await parent.submit()]
    async with scheduler.running():
        await manual_clock.advance(60)
    assert sorted(starts) == ["child", "child", "parent", "parent"]
    assert [(await handle.record()).state for handle in handles] == ["completed"] * 2
