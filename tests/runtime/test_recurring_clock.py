"""A series through clock steps, through time when nothing ran, and through restarts between any two steps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
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
async def test_after_a_step_back_of_the_wall_clock_nothing_comes_again(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, ttl: int | None
) -> None:
    domain = Domain("d")
    starts: list[datetime] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.now())

    begin = manual_clock.now()
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=3600, ttl=ttl).submit()
    async with scheduler.running():
        await manual_clock.advance(3700)
        await manual_clock.jump(timedelta(hours=-5))
        await manual_clock.advance(timedelta(hours=5, minutes=58))
        assert len(starts) == 2
        await manual_clock.advance(timedelta(hours=2))
    assert starts == [begin + timedelta(hours=n) for n in range(4)]
    assert {ending for _, ending in await endings(scheduler)} == {"completed"}


async def test_a_step_forward_brings_one_late_occurrence_and_then_the_grid(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[datetime] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.now())

    begin = manual_clock.now()
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=3600, run_after=60).submit()
    async with scheduler.running():
        await manual_clock.advance(1)
        await manual_clock.jump(timedelta(hours=3))
        await manual_clock.advance(3600)
    assert [at - begin for at in starts] == [timedelta(hours=3, seconds=1), timedelta(hours=3, minutes=1)]


# Restarts between any two steps

Step = Callable[[Scheduler], Awaitable[object]]


async def _tell_story(file: Path, *, reopening: bool) -> tuple[list[str], list[tuple[int, str]], list[TaskRecord]]:
    """The same steps, in one process or in one for each."""
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
