"""How the handler of a preempted task is stopped, and that it uses no retry."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from taskmill import Context, Domain, Retry
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.preempting.work import Work
from tests.runtime.records import active, ended, endings


async def test_the_slot_is_free_only_once_the_handler_has_ended(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    log: list[tuple[str, float]] = []

    @domain.task
    async def stubborn(ctx: Context) -> None:
        log.append(("stubborn", manual_clock.monotonic()))
        if ctx.attempt > 1:
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await manual_clock.sleep(100)
            log.append(("ended", manual_clock.monotonic()))
            raise

    @domain.task
    async def urgent() -> None:
        log.append(("urgent", manual_clock.monotonic()))

    scheduler = await taskmill_scheduler(domains=[domain], shutdown_grace=0, max_concurrency=1, cancel_timeout=300)
    first = await stubborn.submit()
    async with scheduler.running():
        await manual_clock.advance(1)
        await urgent.options(priority=0).submit()
        await manual_clock.advance(50)
        record = await active(scheduler, first.id)
        explained = str(await first.explain())
        await manual_clock.advance(60)
        seen = list(log)
        await scheduler.stop(0)
    assert record.status == "running"
    assert seen[:3] == [("stubborn", 0), ("ended", 101), ("urgent", 101)]
    assert "running" in explained


async def test_a_handler_that_finishes_in_spite_of_it_is_completed(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task
    async def careless() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "done"

    @domain.task
    async def urgent() -> None: ...

    scheduler = await taskmill_scheduler(domains=[domain], shutdown_grace=0, max_concurrency=1)
    first = await careless.submit()
    async with scheduler.running():
        await manual_clock.advance(1)
        await urgent.options(priority=0).submit()
        await manual_clock.advance(1)
    assert await endings(scheduler) == [(first.id, "completed"), (first.id + 1, "completed")]


async def test_a_handler_in_a_thread_sees_that_it_is_cancelled(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    log: list[str] = []
    started = threading.Event()

    @domain.task
    def slow(ctx: Context) -> None:
        log.append(f"slow {ctx.saved.get('part', 0)}")
        if ctx.saved.get("part"):
            return
        ctx.save(part=1)
        started.set()
        while not ctx.cancelled:
            threading.Event().wait(0.005)
        ctx.check_cancelled()

    @domain.task
    async def urgent() -> None:
        log.append("urgent")

    scheduler = await taskmill_scheduler(domains=[domain], shutdown_grace=0, max_concurrency=1)
    handle = await slow.submit()
    async with scheduler.running():
        while not started.is_set():
            await manual_clock.advance(0)
        await urgent.options(priority=0).submit()
        for _ in range(20):
            await manual_clock.advance(0.1)
    record = await ended(scheduler, handle.id)
    assert log == ["slow 0", "urgent", "slow 1"]
    assert (record.ending, record.retries, record.attempt) == ("completed", 0, 2)


async def test_making_way_runs_no_hook_and_costs_no_retry(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock, retry=Retry.none())
    hooks: list[str] = []

    @work.task.on_cancel
    async def undo(name: str, seconds: float = 10) -> None:
        hooks.append(name)

    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    low = await work.task.options(priority=200).submit("low", 5)
    async with scheduler.running():
        for n in range(3):
            await manual_clock.advance(1)
            await work.task.options(priority=0).submit(f"critical {n}", 1)
        await manual_clock.advance(30)
    record = await ended(scheduler, low.id)
    assert (record.ending, record.retries, record.attempt, hooks) == ("completed", 0, 4, [])


async def test_a_timeout_counts_for_each_attempt_alone(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock, timeout=6, retry=Retry.none())
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    low = await work.task.options(priority=200).submit("low", 10)
    async with scheduler.running():
        await manual_clock.advance(5)
        await work.task.options(priority=0).submit("critical", 5)
        await manual_clock.advance(30)
    assert (await ended(scheduler, low.id)).ending == "completed", "5 s and 5 s, each within 6"


async def test_a_deadline_that_passes_during_preemption_does_not_matter(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    low = await work.task.options(priority=200, ttl=3).submit("low", 5)
    async with scheduler.running():
        await manual_clock.advance(1)
        await work.task.options(priority=0).submit("critical", 50)
        await manual_clock.advance(100)
    assert (await ended(scheduler, low.id)).ending == "completed", "it was started in time"


async def test_children_and_parents_and_finalize_can_be_preempted(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    log: list[str] = []

    async def steps(ctx: Context, name: str) -> None:
        log.append(f"start {name}")
        for step in range(int(ctx.saved.get(name, 0)), 4):
            await manual_clock.sleep(1)
            await ctx.save(**{name: step + 1})
        log.append(f"end {name}")

    @domain.task(priority=200)
    async def child(ctx: Context) -> None:
        await steps(ctx, "child")

    @domain.task(priority=200)
    async def parent(ctx: Context) -> None:
        if not ctx.saved.get("spawned"):
            await ctx.spawn(child.prepare())
            await ctx.save(spawned=True)
        await steps(ctx, "parent")

    @parent.finalize
    async def finish(ctx: Context) -> str:
        await steps(ctx, "finalize")
        return f"{len(ctx.children)} child"

    @domain.task
    async def urgent() -> None:
        log.append("urgent")
        await manual_clock.sleep(1)

    scheduler = await taskmill_scheduler(domains=[domain], shutdown_grace=0, max_concurrency=1)
    handle = await parent.submit()
    async with scheduler.running():
        for _ in range(6):
            await manual_clock.advance(2.5)
            await urgent.options(priority=0).submit()
        await manual_clock.advance(60)
    record = await ended(scheduler, handle.id)
    assert (record.ending, record.result) == ("completed", "1 child")
    assert [line for line in log if line.startswith("end")] == ["end parent", "end child", "end finalize"]
    assert log.count("start child") + log.count("start parent") + log.count("start finalize") > 3, "some were preempted"
