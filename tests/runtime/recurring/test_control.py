"""Pausing, resuming and cancelling a series, or one occurrence of it."""

from __future__ import annotations

import asyncio

import pytest

from taskmill import Context, Domain, InvalidState, Retry, TaskNotFound
from taskmill.events import RecurringSkipped, TaskPaused, TaskResumed
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.records import endings
from tests.runtime.records import only_active as active


async def test_cancelling_one_occurrence_leaves_the_series(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())
        if len(starts) == 1:
            await asyncio.Event().wait()

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    first = await tick.options(every=10).submit()
    async with scheduler.running():
        await manual_clock.advance(1)
        assert await first.cancel(), "while it runs"
        await manual_clock.advance(1)
        assert await scheduler.cancel((await active(scheduler)).id), "while it waits"
        await manual_clock.advance(30)
    assert starts == [0, 20, 30]
    assert [ending for _, ending in await endings(scheduler)] == ["cancelled", "cancelled", "completed", "completed"]


async def test_a_paused_series_starts_nothing_and_makes_up_for_nothing(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    listener = scheduler.events(TaskPaused, TaskResumed, RecurringSkipped)
    first = await tick.options(every=10, ttl=1).submit()
    async with scheduler.running():
        await manual_clock.advance(15)
        await scheduler.pause_recurring(first.id)
        assert (await active(scheduler)).status == "paused"
        assert (await scheduler.snapshot()).schedules[0].paused
        await manual_clock.advance(100)
        assert starts == [0, 10]
        await scheduler.resume_recurring(first.id)
        await manual_clock.advance(10)
    assert starts == [0, 10, 120]
    seen = [await anext(listener) for _ in range(3)]
    assert {type(event) for event in seen} == {TaskPaused, TaskResumed, RecurringSkipped}
    assert [event.count for event in seen if isinstance(event, RecurringSkipped)] == [10]


async def test_pausing_lets_the_running_attempt_end_and_holds_its_retry(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []
    may_fail = asyncio.Event()

    @domain.task(retry=Retry.constant(3, 5))
    async def tick() -> None:
        starts.append(manual_clock.monotonic())
        if len(starts) == 1:
            await may_fail.wait()
            raise ValueError

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    first = await tick.options(every=100).submit()
    async with scheduler.running():
        await manual_clock.advance(1)
        await scheduler.pause_recurring(first.id)
        may_fail.set()
        await manual_clock.advance(1)
        record = await active(scheduler)
        assert (record.id, record.status) == (first.id, "paused")
        await scheduler.resume_recurring(first.id)
        await manual_clock.advance(3.999)
        assert starts == [0]
        await manual_clock.advance(0.001)
        assert starts == [0, 6], "its delay is kept"
        await manual_clock.advance(94)
    assert starts == [0, 6, 100]


async def test_any_id_of_a_series_names_it_until_it_is_over(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []
    cancelled = 0

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())
        if len(starts) == 3:
            await asyncio.Event().wait()

    @tick.on_cancel
    async def undo() -> None:
        nonlocal cancelled
        cancelled += 1

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    first = await tick.options(every=10).submit()
    plain = await tick.options(run_after=10_000).submit()
    async with scheduler.running():
        await manual_clock.advance(11)
        waiting = (await scheduler.snapshot()).schedules[0].task_id
        assert waiting is not None
        for id in (first.id, waiting):
            await scheduler.pause_recurring(id)
            assert (await scheduler.snapshot()).schedules[0].paused
            await scheduler.resume_recurring(id)
            assert not (await scheduler.snapshot()).schedules[0].paused
        await manual_clock.advance(10)
        await scheduler.cancel_recurring(first.id)
        await manual_clock.advance(100)
        assert (starts, cancelled) == ([0, 10, 20], 1)
        for change in (scheduler.pause_recurring, scheduler.resume_recurring, scheduler.cancel_recurring):
            for id in (first.id, plain.id):
                with pytest.raises(InvalidState, match="series"):
                    await change(id)
    assert (await scheduler.snapshot()).schedules == []


async def test_the_first_id_names_a_series_after_it_was_pruned_or_brought_back(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    starts: list[int] = []

    @domain.task(retry=Retry.none())
    async def tick(ctx: Context) -> None:
        starts.append(ctx.task.id)
        if len(starts) == 1:
            raise ValueError("the first run fails")

    scheduler = await taskmill_scheduler(domains=[domain])
    first = await tick.options(every=10).submit()
    async with scheduler.running():
        await manual_clock.advance(5)
        await scheduler.retry_dead(first.id)
        await manual_clock.advance(0)
        await scheduler.pause_recurring(first.id)
        await scheduler.resume_recurring(first.id)
        await manual_clock.advance(10)
        assert await scheduler.prune(max_count=0) == 2
        await scheduler.pause_recurring(first.id)
        await manual_clock.advance(30)
        assert len(starts) == 3, "the series is paused"
        await scheduler.resume_recurring(first.id)
        await manual_clock.advance(10)
        assert len(starts) == 4
        await scheduler.cancel_recurring(first.id)
        await manual_clock.advance(30)
        assert len(starts) == 4
        with pytest.raises(TaskNotFound):
            await scheduler.cancel_recurring(first.id)
