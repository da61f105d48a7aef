"""History beyond ``max_age`` and ``max_count`` is pruned while something dispatches, however few tasks end."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from taskmill import Domain, Retention, Scheduler
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory

domain = Domain("d")


@domain.task
async def work() -> None: ...


@pytest.mark.parametrize(
    ("max_age", "allowance"),
    [(timedelta(seconds=10), timedelta(minutes=1)), (timedelta(hours=10), timedelta(hours=1))],
)
async def test_the_age_of_history_holds_within_a_minute_or_a_tenth(
    taskmill_scheduler: SchedulerFactory,
    manual_clock: ManualClock,
    any_store: str,
    max_age: timedelta,
    allowance: timedelta,
) -> None:
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], retention=Retention(max_age=max_age))
    async with scheduler.running():
        await work.submit()
        await manual_clock.advance(1)
        await manual_clock.advance(max_age / 2)
        await work.submit()
        await manual_clock.advance(max_age / 2 - timedelta(seconds=1))
        assert await scheduler.count(status="completed") == 2, "none is too old"
        await manual_clock.advance(allowance)
        assert await scheduler.count(status="completed") == (1 if max_age > allowance else 0)
        await manual_clock.advance(max_age / 2)
        assert await scheduler.count(status="completed") == 0
        await work.submit()
        await manual_clock.advance(max_age + allowance)
        assert await scheduler.count(status="completed") == 0, "also after history was empty"


@pytest.mark.parametrize("kept", [Retention(max_count=3), Retention(per_status={"completed": 3})], ids=["all", "one"])
async def test_the_count_of_history_holds_within_a_second(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, kept: Retention
) -> None:
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], retention=kept)
    async with scheduler.running():
        for _ in range(2):
            handles = await scheduler.submit_many([work.prepare() for _ in range(10)])
            await manual_clock.advance(0)
            await manual_clock.advance(1)
            newest = [handle.id for handle in reversed(handles[-3:])]
            assert [record.id for record in await scheduler.history()] == newest


async def test_each_ending_keeps_to_its_own_age(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    kept = Retention(max_age=None, per_status={"completed": Retention(max_age=600)})
    scheduler = await taskmill_scheduler(domains=[domain], retention=kept)
    async with scheduler.running():
        await work.submit()
        cancelled = await work.options(run_after=60).submit()
        await cancelled.cancel()
        await manual_clock.advance(660)
        assert await scheduler.count(status="completed") == 0
        await manual_clock.advance(timedelta(days=100))
        assert await scheduler.count(status="cancelled") == 1


async def test_records_that_became_too_old_without_a_dispatcher_are_pruned_by_the_next(
    tmp_path: Path, manual_clock: ManualClock
) -> None:
    settings = {"domains": [domain], "clock": manual_clock, "retention": Retention(max_age=3600)}
    async with Scheduler(tmp_path / "tasks.db", **settings) as scheduler:  # type: ignore[arg-type]
        await work.submit()
        await scheduler.run_until_idle()
    await manual_clock.advance(7200)
    async with Scheduler(tmp_path / "tasks.db", **settings) as scheduler:  # type: ignore[arg-type]
        assert await scheduler.count(status="completed") == 1
        async with scheduler.running():
            await manual_clock.advance(0)
            assert await scheduler.count(status="completed") == 0


async def test_tasks_that_end_while_history_is_pruned_are_pruned_when_too_old(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = await taskmill_scheduler(domains=[domain], retention=Retention(max_age=3600))
    oldest_ended = scheduler._store.oldest_ended

    async def reading_then_slow(*arguments: object) -> int | None:
        oldest = await oldest_ended(*arguments)  # type: ignore[arg-type]
        monkeypatch.undo()
        handle = await work.submit()
        await handle.wait()
        return oldest

    monkeypatch.setattr(scheduler._store, "oldest_ended", reading_then_slow)
    async with scheduler.running():
        await manual_clock.advance(1)
        assert await scheduler.count(status="completed") == 1
        await manual_clock.advance(timedelta(hours=1, minutes=6))
        assert await scheduler.count(status="completed") == 0


async def test_a_step_of_the_clock_makes_history_older(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], retention=Retention(max_age=86_400))
    async with scheduler.running():
        await work.submit()
        await manual_clock.advance(1)
        await manual_clock.jump(timedelta(days=2))
        await manual_clock.advance(0)
        assert await scheduler.count(status="completed") == 0


async def test_an_idle_dispatcher_wakes_only_as_often_as_ages_demand(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = await taskmill_scheduler(domains=[domain], retention=Retention(max_age=86_400))
    looks = 0
    prune = scheduler._store.prune

    async def counting(*arguments: object, durable: bool = True) -> int:
        nonlocal looks
        looks += 1
        return await prune(*arguments, durable=durable)  # type: ignore[arg-type]

    monkeypatch.setattr(scheduler._store, "prune", counting)
    async with scheduler.running():
        for _ in range(3):
            await work.submit()
            await manual_clock.advance(60)
        await manual_clock.advance(timedelta(days=30))
        assert await scheduler.count(status="completed") == 0
        assert looks <= 4, "once at the start, and once for the records that became too old"
