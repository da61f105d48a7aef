"""A series across clock steps, downtime, and restarts between any two steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from taskmill import Context, Domain, GiveUp, Retry, Scheduler
from taskmill.events import RecurringSkipped
from taskmill.model.records import TaskRecord
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.records import endings
from tests.runtime.records import only_active as active


async def test_a_late_occurrence_runs_once_after_the_process_was_down(
    manual_clock: ManualClock, tmp_path: Path
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())

    async with Scheduler(tmp_path / "tasks.db", domains=[domain], clock=manual_clock) as scheduler:
        await tick.options(every=10).submit()
        await scheduler.run_until_idle()
    await manual_clock.advance(45)
    async with Scheduler(tmp_path / "tasks.db", domains=[domain], clock=manual_clock) as scheduler:
        listener = scheduler.events(RecurringSkipped)
        async with scheduler.running():
            await manual_clock.advance(20)
        event = await anext(listener)
        assert isinstance(event, RecurringSkipped)
        assert event.count == 3
    assert starts == [0, 45, 50, 60]


@pytest.mark.parametrize("ttl", [None, 60])
@pytest.mark.parametrize("step", [timedelta(hours=-5), timedelta(seconds=-90), timedelta(hours=3), timedelta(days=400)])
async def test_a_step_of_the_wall_clock_moves_no_occurrence(
    taskmill_scheduler: SchedulerFactory,
    manual_clock: ManualClock,
    any_store: str,
    ttl: int | None,
    step: timedelta,
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=3600, ttl=ttl).submit()
    async with scheduler.running():
        await manual_clock.advance(3700)
        await manual_clock.jump(step)
        await manual_clock.advance(3 * 3600)
    assert starts == [0, 3600, 7200, 10_800, 14_400]
    assert {ending for _, ending in await endings(scheduler)} == {"completed"}


async def test_a_clock_that_is_a_day_wrong_for_half_a_minute_stops_nothing(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=20).submit()
    async with scheduler.running():
        await manual_clock.advance(15)
        await manual_clock.jump(timedelta(days=1))
        await manual_clock.advance(30)
        await manual_clock.jump(timedelta(days=-1))
        await manual_clock.advance(60)
    assert starts == [0, 20, 40, 60, 80, 100]


async def test_a_step_while_an_occurrence_runs_or_its_series_is_paused_moves_the_beats_too(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())
        await manual_clock.sleep(5)

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    first = await tick.options(every=20).submit()
    async with scheduler.running():
        await manual_clock.advance(2)
        await manual_clock.jump(timedelta(days=-1))
        await manual_clock.advance(20)
        await manual_clock.jump(timedelta(days=2))
        await manual_clock.advance(10)
        await scheduler.pause_recurring(first.id)
        await manual_clock.jump(timedelta(days=-3))
        await manual_clock.advance(20)
        await scheduler.resume_recurring(first.id)
        await manual_clock.advance(20)
    assert starts == [0, 20, 60]


@pytest.mark.parametrize("step", [timedelta(days=-1), timedelta(seconds=10)])
async def test_a_first_occurrence_at_an_instant_keeps_to_it_and_its_beats_begin_there(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, step: timedelta
) -> None:
    domain = Domain("d")
    starts: list[datetime] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.now())

    at = manual_clock.now() + timedelta(seconds=100)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=60, run_at=at).submit()
    async with scheduler.running():
        await manual_clock.advance(50)
        await manual_clock.jump(step)
        await manual_clock.advance(timedelta(seconds=50) - step)
        assert starts == [at]
        await manual_clock.jump(-step)
        await manual_clock.advance(60)
    assert starts == [at, at + timedelta(seconds=60) - step]


async def test_the_delay_of_a_first_occurrence_is_kept_through_a_step(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=3600, run_after=60).submit()
    async with scheduler.running():
        await manual_clock.advance(1)
        await manual_clock.jump(timedelta(hours=3))
        await manual_clock.advance(3660)
    assert starts == [60, 3660]


# The clock is put back while nothing runs


@pytest.mark.parametrize("delay", [0, 50])
@pytest.mark.parametrize("ran", [True, False])
async def test_a_clock_put_back_while_nothing_ran_delays_the_next_run_by_no_more_than_before(
    manual_clock: ManualClock, tmp_path: Path, delay: int, ran: bool
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())

    async with Scheduler(tmp_path / "tasks.db", domains=[domain], clock=manual_clock) as scheduler:
        await tick.options(every=60, ttl=30, run_after=delay).submit()
        if ran:
            async with scheduler.running():
                await manual_clock.advance(delay)
    await manual_clock.advance(10)
    await manual_clock.jump(timedelta(days=-1))
    began = manual_clock.monotonic()
    async with Scheduler(tmp_path / "tasks.db", domains=[domain], clock=manual_clock) as scheduler, scheduler.running():
        await manual_clock.advance(60)
        assert began <= starts[int(ran)] <= began + 60
        await manual_clock.advance(60)
        assert {ending for _, ending in await endings(scheduler)} == {"completed"}
    assert [after - before for before, after in pairwise(starts[int(ran) :])] == [60] * (len(starts) - int(ran) - 1)


async def test_a_clock_put_back_under_a_killed_occurrence_leaves_the_next_one_interval_away(
    manual_clock: ManualClock, tmp_path: Path
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())
        if len(starts) == 2:
            await asyncio.Event().wait()

    settings = {"domains": [domain], "clock": manual_clock, "shutdown_grace": 0}
    async with Scheduler(tmp_path / "tasks.db", **settings) as scheduler:  # type: ignore[arg-type]
        await tick.options(every=60).submit()
        async with scheduler.running():
            await manual_clock.advance(65)
            assert starts == [0, 60]
    await manual_clock.jump(-45)
    async with Scheduler(tmp_path / "tasks.db", **settings) as scheduler, scheduler.running():  # type: ignore[arg-type]
        await manual_clock.advance(60)
    assert starts[2] - starts[1] <= 6, "the interrupted occurrence runs again"
    assert len(starts) == 4
    assert starts[3] - starts[2] <= 60


async def test_a_restart_does_not_bring_back_what_was_cancelled(manual_clock: ManualClock, tmp_path: Path) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())

    async with Scheduler(tmp_path / "tasks.db", domains=[domain], clock=manual_clock) as scheduler, scheduler.running():
        await tick.options(every=10).submit()
        await manual_clock.advance(1)
        for _ in range(2):
            await scheduler.cancel((await active(scheduler)).id)
        assert await seconds_until_run(scheduler, manual_clock) == 29
    async with Scheduler(tmp_path / "tasks.db", domains=[domain], clock=manual_clock) as scheduler, scheduler.running():
        await manual_clock.advance(30)
    assert starts == [0, 30]


async def seconds_until_run(scheduler: Scheduler, clock: ManualClock) -> float:
    run_at = (await active(scheduler)).run_at
    assert run_at is not None
    return (run_at - clock.now()).total_seconds()


# Restarts between any two steps

Step = Callable[[Scheduler], Awaitable[object]]


async def _tell_story(file: Path, *, reopening: bool) -> tuple[list[str], list[tuple[int, str]], list[TaskRecord]]:
    """Run the same steps, in one process or in one process for each."""
    clock = ManualClock()
    domain = Domain("d")
    story: list[str] = []

    @domain.task(key="k", retry=Retry.constant(2, 3))
    async def tick(ctx: Context, version: int) -> None:
        story.append(f"{clock.monotonic():g}: task {ctx.task.id} attempt {ctx.attempt} version {version}")
        if ctx.task.id % 3 == 0 and ctx.task.retries < 2:
            raise ValueError
        if ctx.task.id == 4:
            raise GiveUp("no")

    async def cancel_active(scheduler: Scheduler) -> None:
        await scheduler.cancel((await active(scheduler)).id)

    steps: list[Step] = [
        lambda _: tick.options(every=10, run_after=5, max_runs=50).submit(1),
        lambda _: clock.advance(7),
        lambda _: clock.advance(18),
        lambda scheduler: scheduler.pause_recurring(1),
        lambda _: clock.advance(21),
        lambda scheduler: scheduler.resume_recurring(1),
        lambda _: clock.advance(17),
        cancel_active,
        lambda _: clock.jump(-50),
        lambda _: clock.advance(70),
        lambda _: tick.options(on_duplicate="supersede").submit(2),
        lambda _: clock.advance(9),
        lambda _: clock.jump(33),
        lambda _: clock.advance(40),
        lambda scheduler: scheduler.cancel_recurring(1),
        lambda _: clock.advance(40),
    ]

    @asynccontextmanager
    async def opened() -> AsyncIterator[Scheduler]:
        async with Scheduler(file, domains=[domain], clock=clock) as scheduler, scheduler.running():
            await clock.advance(0)
            yield scheduler
            await clock.advance(0)

    if reopening:
        for step in steps:
            async with opened() as scheduler:
                await step(scheduler)
    else:
        async with opened() as scheduler:
            for step in steps:
                await step(scheduler)
                await clock.advance(0)
    async with Scheduler(file, domains=[domain], clock=clock) as scheduler:
        return story, await endings(scheduler), await scheduler.tasks()


async def test_opening_and_closing_between_any_two_steps_changes_nothing(tmp_path: Path) -> None:
    straight = await _tell_story(tmp_path / "straight.db", reopening=False)
    reopened = await _tell_story(tmp_path / "reopened.db", reopening=True)
    assert straight == reopened
    assert len(straight[0]) > 10
    assert straight[2] == [], "the series was cancelled"
