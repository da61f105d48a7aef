"""Recurring work: a grid without drift, one occurrence at a time, each a separate task."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from taskmill import Context, Domain, GiveUp, Retry, SubmissionError
from taskmill.events import TaskSubmitted
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.records import endings
from tests.runtime.records import only_active as active


async def test_occurrences_keep_to_the_grid_and_each_is_a_task_of_its_own(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[tuple[int, float, int]] = []

    @domain.task(tags={"a": "b"}, priority=7)
    async def tick(ctx: Context, word: str) -> None:
        assert (word, ctx.task.tags, ctx.task.priority) == ("x", {"a": "b"}, 7)
        starts.append((ctx.task.id, manual_clock.monotonic(), ctx.attempt))
        await manual_clock.sleep(3)

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    listener = scheduler.events(TaskSubmitted)
    await tick.options(every=10).submit("x")
    async with scheduler.running():
        await manual_clock.advance(34)
    assert [(at, attempt) for _, at, attempt in starts] == [(0, 1), (10, 1), (20, 1), (30, 1)]
    assert len({id for id, _, _ in starts}) == 4
    assert [(await anext(listener)).task_id for _ in range(4)] == [id for id, _, _ in starts]
    record = await active(scheduler)
    assert (record.status, record.run_at) == ("scheduled", manual_clock.now() + timedelta(seconds=6))


@pytest.mark.parametrize("option", ["run_at", "run_after"])
async def test_the_first_occurrence_is_due_when_the_submission_says_so(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, option: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())

    scheduler = await taskmill_scheduler(domains=[domain])
    begins = 7 if option == "run_after" else manual_clock.now() + timedelta(seconds=7)
    await tick.options(every=timedelta(seconds=10), **{option: begins}).submit()  # type: ignore[arg-type]
    async with scheduler.running():
        await manual_clock.advance(30)
    assert starts == [7, 17, 27]


async def test_max_runs_is_the_number_of_occurrences_whatever_becomes_of_them(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")

    @domain.task(retry=Retry.none())
    async def tick(ctx: Context) -> None:
        if ctx.task.id == 1:
            raise ValueError("dead")
        if ctx.task.id == 2:
            raise GiveUp("no")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=10, max_runs=4).submit()
    async with scheduler.running():
        await manual_clock.advance(25)
        await scheduler.cancel((await active(scheduler)).id)
        await manual_clock.advance(1000)
    assert [ending for _, ending in await endings(scheduler)] == ["dead_letter", "failed", "completed", "cancelled"]
    assert await scheduler.count(status="scheduled") == 0
    assert (await scheduler.snapshot()).schedules == []


async def test_each_occurrence_has_fresh_retries_and_a_dead_one_does_not_end_the_series(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[tuple[float, int]] = []

    @domain.task(retry=Retry.constant(1, 2))
    async def tick(ctx: Context) -> None:
        starts.append((manual_clock.monotonic(), ctx.task.retries))
        raise ValueError

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=10).submit()
    async with scheduler.running():
        await manual_clock.advance(15)
    assert starts == [(0, 0), (2, 1), (10, 0), (12, 1)]
    assert await endings(scheduler) == [(1, "dead_letter"), (2, "dead_letter")]


async def test_a_time_to_live_counts_from_when_an_occurrence_is_due(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []
    may_end = asyncio.Event()

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())
        await manual_clock.sleep(5)

    @domain.task(priority=0)
    async def block() -> None:
        await may_end.wait()

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=1)
    await tick.options(every=100, run_after=100, ttl=3).submit()
    async with scheduler.running():
        await manual_clock.advance(110)
        assert starts == [100]
        await block.submit()
        await manual_clock.advance(92.999)
        assert await endings(scheduler) == [(1, "completed")]
        await manual_clock.advance(0.001)
        assert (await endings(scheduler))[-1][1] == "expired", "it expires on time, though the slot is taken"
        may_end.set()
        await manual_clock.advance(150)
    assert starts == [100, 300]


async def test_recurring_dependents_and_children_are_refused(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d")
    refusals: list[str] = []

    @domain.task
    async def tick() -> None: ...

    @domain.task
    async def parent(ctx: Context) -> None:
        try:
            await ctx.spawn(tick.options(every=10).prepare())
        except SubmissionError as refusal:
            refusals.append(str(refusal))

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    blocker = await parent.submit()
    with pytest.raises(SubmissionError, match="every and depends_on"):
        await tick.options(every=10, depends_on=blocker).submit()
    with pytest.raises(SubmissionError, match="max_runs"):
        await tick.options(max_runs=10).submit()
    with pytest.raises(SubmissionError, match="every"):
        await tick.options(every=0).submit()
    await scheduler.run_until_idle()
    assert [refusal for refusal in refusals if "every" in refusal]
    assert await endings(scheduler) == [(blocker.id, "completed")]
