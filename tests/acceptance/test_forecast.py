"""A forecast gives ranges for the starts and ends of tasks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskmill import ConfigError, Domain, Retry, Scheduler, TaskNotFound, to_json
from taskmill.simulation import forecasting
from taskmill.simulation.forecasting import sample_count
from taskmill.testing import ManualClock

work = Domain("work")
clock = ManualClock()


@work.task
async def step(seconds: float = 10) -> None:
    await clock.sleep(seconds)


@work.task(retry=Retry.constant(1, 5))
async def fail() -> None:
    await clock.sleep(1)
    raise RuntimeError("it fails")


@pytest.fixture
async def scheduler(tmp_path: Path) -> AsyncIterator[Scheduler]:
    """A scheduler with one slot, in whose history a step takes 10 s."""
    async with Scheduler(tmp_path / "tasks.db", domains=[work], clock=clock, max_concurrency=1) as opened:
        async with opened.running():
            await step.submit()
            await clock.advance(10)
        yield opened


async def test_the_outlook_of_a_task_a_group_a_type_and_a_priority(scheduler: Scheduler) -> None:
    first, second = await scheduler.submit_many(
        [step.options(priority=64).prepare(), step.options(group="g").prepare()]
    )
    forecast = await scheduler.forecast(samples=5)
    now = clock.now()
    outlook = forecast.of(second.id)
    assert outlook.start is not None
    assert outlook.start.p10 == outlook.start.p50 == outlook.start.p90 == now + timedelta(seconds=10)
    assert outlook.end is not None
    assert outlook.end.p50 == now + timedelta(seconds=20)
    assert forecast.empty_at == outlook.end
    assert forecast.groups["g"] == forecast.priorities[128] == outlook
    assert forecast.groups[""] == forecast.priorities[64] == forecast.of(first.id)
    assert forecast.types["work::step"].start == forecast.of(first.id).start
    assert forecast.types["work::step"].end == outlook.end
    assert forecast.notes == []


async def test_a_cancelled_run_says_nothing_about_durations(scheduler: Scheduler) -> None:
    async with scheduler.running():
        for _ in range(5):
            cut_short = await step.submit()
            await clock.advance(1)
            await cut_short.cancel()
    _, second = await scheduler.submit_many([step.prepare(), step.prepare()])
    forecast = await scheduler.forecast(samples=5)
    start = forecast.of(second.id).start
    assert start is not None
    assert start.p10 == start.p90 == clock.now() + timedelta(seconds=10)


async def test_different_durations_make_a_range(scheduler: Scheduler) -> None:
    async with scheduler.running():
        await scheduler.submit_many([step.prepare(seconds) for seconds in (5, 20, 40)])
        await clock.advance(100)
    _, second = await scheduler.submit_many([step.prepare()] * 2)
    start = (await scheduler.forecast(samples=100)).of(second.id).start
    assert start is not None
    assert start.p10 is not None
    assert start.p90 is not None
    assert start.p90 - start.p10 == timedelta(seconds=35)


async def test_failures_and_retries_are_included(scheduler: Scheduler) -> None:
    async with scheduler.running():
        await fail.submit()
        await clock.advance(20)
    handle = await fail.submit()
    end = (await scheduler.forecast(samples=5)).of(handle.id).end
    assert end is not None
    assert end.p50 == clock.now() + timedelta(seconds=7)


async def test_recurring_work_is_included(scheduler: Scheduler) -> None:
    """Its second occurrence, at 5 s, is before the task that is due at 8 s."""
    recurring = await step.options(every=5, max_runs=2, priority=0).submit()
    later = await step.options(run_after=12).submit()
    forecast = await scheduler.forecast(samples=2)
    start = forecast.of(later.id).start
    assert start is not None
    assert start.p50 == clock.now() + timedelta(seconds=20)
    assert forecast.of(recurring.id).start is not None


async def test_only_paused_and_recurring_tasks_need_no_more_occurrences(scheduler: Scheduler) -> None:
    """The paused task cannot start in any sample, whatever its time-to-live, so the samples do not wait for it."""
    await scheduler.group("paused").pause()
    first, second = await scheduler.submit_many(
        [step.options(group="paused", ttl="1d").prepare(), step.options(group="paused", run_after=60).prepare()]
    )
    dependent = await step.options(depends_on=[first]).submit()
    recurring = await step.options(every=1).submit()
    async with asyncio.timeout(20):
        forecast = await scheduler.forecast()
    assert forecast.samples == 200
    assert forecast.notes == []
    assert forecast.empty_at is None
    assert [forecast.of(each.id).start for each in (first, second, dependent)] == [None] * 3
    end = forecast.of(recurring.id).end
    assert end is not None
    assert end.p90 == clock.now() + timedelta(seconds=10)


async def test_a_task_that_waits_behind_occurrences_is_found(scheduler: Scheduler) -> None:
    await scheduler.group("paused").pause()
    await step.options(group="paused").submit()
    await step.options(every=20, max_runs=5, priority=0).submit()
    await step.options(run_after=5, priority=0).submit()
    behind = await step.options(priority=255).submit()
    forecast = await scheduler.forecast(samples=2)
    start = forecast.of(behind.id).start
    assert start is not None
    assert start.p50 == clock.now() + timedelta(seconds=30)


async def test_occurrences_count_among_the_starts_and_limit_the_horizon(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasting, "MOST_OCCURRENCES", 20)
    monkeypatch.setattr(forecasting, "MOST_STARTS", 3_300)
    await step.options(every=10).submit()
    soon, late = await scheduler.submit_many([step.options(run_after=after).prepare() for after in ("1m", "1h")])
    async with asyncio.timeout(20):
        forecast = await scheduler.forecast()
    assert forecast.samples == 100, "33 starts each, 10 of them for the beginning"
    assert forecast.of(soon.id).start is not None
    assert forecast.of(late.id).start is None
    assert forecast.empty_at is None
    (note,) = forecast.notes
    assert note.startswith("recurring tasks run so often that only the time until 20")


async def test_beyond_the_horizon_there_is_nothing(scheduler: Scheduler) -> None:
    near, far = await scheduler.submit_many([step.prepare(), step.options(run_after="2h").prepare()])
    forecast = await scheduler.forecast(horizon="1h", samples=3)
    assert forecast.empty_at is None
    assert forecast.of(far.id).start is None
    assert forecast.of(near.id).end is not None
    with pytest.raises(TaskNotFound):
        forecast.of(99_999)


async def test_a_type_without_past_runs_is_noted(scheduler: Scheduler) -> None:
    await fail.submit()
    assert "work::fail" in (await scheduler.forecast(samples=1)).notes[0]


async def test_an_empty_queue_is_empty_now(scheduler: Scheduler) -> None:
    forecast = await scheduler.forecast()
    assert forecast.empty_at is not None
    assert forecast.empty_at.p90 == clock.now()
    fields = {"empty_at", "groups", "types", "priorities", "tasks", "samples", "notes"}
    assert json.loads(to_json(forecast)).keys() == fields


@pytest.mark.one_engine("the number of samples is computed")
def test_a_forecast_of_few_tasks_has_a_bounded_number_of_samples() -> None:
    assert sample_count(200, 500) == 200
    assert sample_count(10**9, 1) < 20_000
    assert sample_count(10**9, 1_000_000) == 10
    assert sample_count(3, 1_000_000) == 3


@pytest.mark.parametrize("id", ["x", None, True, 1.0])
async def test_only_an_id_has_an_outlook(scheduler: Scheduler, id: Any) -> None:
    await step.submit()
    forecast = await scheduler.forecast(samples=1)
    with pytest.raises(ConfigError, match=f"id must be an int, not {type(id).__name__}"):
        forecast.of(id)
    with pytest.raises(TaskNotFound, match="no task has the id -1"):
        forecast.of(-1)


async def test_wrong_arguments_are_named(scheduler: Scheduler) -> None:
    with pytest.raises(ConfigError, match="samples"):
        await scheduler.forecast(samples=0)
    with pytest.raises(ConfigError, match="horizon"):
        await scheduler.forecast(horizon="soon")
