"""Deadlines, age and recurring work while paused: their clocks stand still, exact to the millisecond."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskmill import Aging, Domain, Retry, RetryLater, Scheduler
from taskmill.events import TaskExpired
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.records import active, endings, only_active

SCOPES = ["scheduler", "domain", "group"]


def _control(scheduler: Scheduler, scope: str) -> Any:
    return {"scheduler": scheduler, "domain": scheduler.domain("d"), "group": scheduler.group("g")}[scope]


def _domain(clock: ManualClock) -> tuple[Domain, Any, list[float]]:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def work() -> None:
        starts.append(clock.monotonic())

    return domain, work, starts


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_paused_task_past_its_deadline_does_not_prevent_idle(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, scope: str
) -> None:
    domain, work, starts = _domain(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await _control(scheduler, scope).pause()
    handle = await work.options(group="g", ttl=10).submit()
    await manual_clock.advance(11)
    await asyncio.wait_for(scheduler.run_until_idle(), 20)
    status = (await active(scheduler, handle.id)).status
    await _control(scheduler, scope).resume()
    await asyncio.wait_for(scheduler.run_until_idle(), 20)
    assert str(status) in ("pending", "paused")
    assert starts == [11]


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("extra", [0, 1])
async def test_a_deadline_is_moved_by_the_time_paused_to_the_millisecond(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, scope: str, extra: int
) -> None:
    domain, work, starts = _domain(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=1)
    expired = scheduler.events(TaskExpired)
    await scheduler.group("blocker").pause()
    blocker = await work.options(group="blocker").submit()
    handle = await work.options(group="g", ttl=10, depends_on=[blocker]).submit()
    async with scheduler.running():
        await manual_clock.advance(4)
        await _control(scheduler, scope).pause()
        await manual_clock.advance(1000.123)
        shown = (await active(scheduler, handle.id)).expires_at
        await _control(scheduler, scope).resume()
        await manual_clock.advance(timedelta(seconds=6) - timedelta(milliseconds=1) + timedelta(milliseconds=extra))
        record = await scheduler.get(handle.id)
    assert starts == []
    assert shown is not None
    assert shown - manual_clock.now() == timedelta(milliseconds=1 - extra)
    assert getattr(record, "ending", "none") == ("expired" if extra else "none")
    if extra:
        event = await anext(expired)
        assert isinstance(event, TaskExpired)
        assert event.age == timedelta(seconds=1010.123), "the age includes paused time"


async def test_nothing_paused_expires_however_long(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain, work, starts = _domain(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await scheduler.group("g").pause()
    async with scheduler.running():
        for _ in range(3):
            await work.options(group="g", ttl=1).submit()
            await work.options(group="h", ttl=1, run_after=2).submit()
            await manual_clock.advance(3600)
        during = await endings(scheduler)
        await scheduler.group("g").resume()
        await manual_clock.advance(0)
    assert [ending for _, ending in during] == ["expired"] * 3, "those of the other group"
    assert starts == [10800.0] * 3


async def test_age_does_not_grow_while_paused(taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock) -> None:
    domain, work, _ = _domain(manual_clock)
    scheduler = await taskmill_scheduler(domains=[domain], aging=Aging(grace=10, interval=1, ceiling=0))
    handle = await work.options(group="g").submit()
    seen: list[int] = []

    async def look() -> None:
        explained = await handle.explain()
        record = await active(scheduler, handle.id)
        snapshot = await scheduler.snapshot()
        assert explained.effective_priority == record.effective_priority == snapshot.groups["g"].next_priority
        seen.append(record.effective_priority)

    await manual_clock.advance(15.999)
    await look()
    await scheduler.group("g").pause()
    await manual_clock.advance(500)
    await look()
    await scheduler.domain("d").pause()
    await scheduler.group("g").resume()
    await manual_clock.advance(500)
    await look()
    await scheduler.domain("d").resume()
    await look()
    await manual_clock.advance(0.001)
    await look()
    assert seen == [123, 123, 123, 123, 122]


async def test_a_retry_that_comes_due_while_paused_waits_and_is_given_its_time(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task(retry=Retry.constant(3, 5), ttl=20)
    async def flaky() -> None:
        starts.append(manual_clock.monotonic())
        if len(starts) == 1:
            await manual_clock.sleep(4)
            raise RetryLater("not yet", after=5)

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    handle = await flaky.options(group="g").submit()
    async with scheduler.running():
        await manual_clock.advance(2)
        await scheduler.group("g").pause()
        await manual_clock.advance(100)
        record = await active(scheduler, handle.id)
        await scheduler.group("g").resume()
        await manual_clock.advance(0)
    assert record.status == "paused"
    # It ran until second 4: 98 of the 102 s count as paused.
    assert record.expires_at is not None
    assert record.expires_at - manual_clock.now() == timedelta(seconds=20 + 98 - 102)
    assert starts == [0, 102]


async def test_a_step_of_the_clock_while_paused_moves_no_deadline(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain, work, starts = _domain(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await scheduler.group("g").pause()
    handle = await work.options(group="g", ttl=100).submit()
    left: list[timedelta] = []
    async with scheduler.running():
        for step in (3600, -7200, 50):
            await manual_clock.advance(10)
            await manual_clock.jump(step)
            await manual_clock.advance(10)
            expires_at = (await active(scheduler, handle.id)).expires_at
            assert expires_at is not None
            left.append(expires_at - manual_clock.now())
        await scheduler.pause()
        await scheduler.group("g").resume()
        expires_at = (await active(scheduler, handle.id)).expires_at
        assert expires_at is not None
        left.append(expires_at - manual_clock.now())
        await scheduler.resume()
        await manual_clock.advance(0)
    assert left == [timedelta(seconds=100)] * 4
    assert len(starts) == 1


# Recurring work


async def test_a_recurring_task_in_a_paused_group_runs_once_when_it_is_resumed(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain, work, starts = _domain(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await work.options(group="g", every=10, ttl=3).submit()
    async with scheduler.running():
        await manual_clock.advance(15)
        await scheduler.group("g").pause()
        due = (await only_active(scheduler)).expires_at
        await manual_clock.advance(4)
        early = (await only_active(scheduler)).expires_at
        await manual_clock.advance(56)
        late = await only_active(scheduler)
        await scheduler.group("g").resume()
        await manual_clock.advance(20)
    assert starts == [0, 10, 75, 80, 90], "no pile-up, and the grid is kept"
    assert early == due, "its time-to-live has not begun"
    assert late.status == "paused"
    assert late.expires_at is not None
    assert late.expires_at - manual_clock.now() == timedelta(seconds=3 - 20), "it was due when its series was paused"


async def test_a_series_and_its_group_are_paused_and_resumed_in_any_order(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    for group_first in (True, False):
        domain, work, starts = _domain(manual_clock)
        scheduler = await taskmill_scheduler(domains=[domain])
        began = manual_clock.monotonic()
        handle = await scheduler.submit(work.options(group="g", every=10).prepare())
        async with scheduler.running():
            await manual_clock.advance(1)
            await scheduler.group("g").pause()
            await scheduler.pause_recurring(handle.id)
            await manual_clock.advance(30)
            if group_first:
                await scheduler.group("g").resume()
                await manual_clock.advance(10)
                await scheduler.resume_recurring(handle.id)
            else:
                await scheduler.resume_recurring(handle.id)
                await manual_clock.advance(10)
                await scheduler.group("g").resume()
            await manual_clock.advance(10)
        expected = [0, 50] if group_first else [0, 41, 50]
        assert [start - began for start in starts] == expected, group_first
        await scheduler.close()


async def test_a_series_paused_while_it_runs_does_not_keep_its_group_from_being_resumed(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())
        await manual_clock.sleep(2)

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    handle = await tick.options(group="g", every=10).submit()
    async with scheduler.running():
        await manual_clock.advance(1)
        await scheduler.pause_recurring(handle.id)
        await manual_clock.advance(2)
        for scope in SCOPES:
            await _control(scheduler, scope).pause()
            await _control(scheduler, scope).resume()
        await scheduler.resume_recurring(handle.id)
        await manual_clock.advance(10)
    assert starts == [0, 10]


async def test_deadlines_and_series_survive_a_restart_in_a_paused_group(
    manual_clock: ManualClock, tmp_path: Path
) -> None:
    domain, work, starts = _domain(manual_clock)
    file = tmp_path / "tasks.db"
    async with Scheduler(file, domains=[domain], clock=manual_clock) as scheduler:
        await work.options(group="g", ttl=5).submit()
        await work.options(group="g", every=60, ttl=5).submit()
        await scheduler.group("g").pause()
    await manual_clock.advance(3590)
    async with Scheduler(file, domains=[domain], clock=manual_clock) as scheduler:
        await scheduler.run_until_idle(timeout=10)
        assert (starts, await endings(scheduler)) == ([], [])
        await scheduler.group("g").resume()
        await scheduler.run_until_idle(timeout=10)
        assert starts == [3590, 3590]
        schedule = (await scheduler.snapshot()).schedules[0]
        assert schedule.next_run is not None
        assert (schedule.next_run - manual_clock.now()).total_seconds() == 10


@pytest.mark.parametrize("step", [-3600, -30, 40])
@pytest.mark.parametrize("option", ["run_after", "run_at"])
async def test_a_step_of_the_clock_leaves_a_paused_delayed_task_the_time_that_it_has_left(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, step: int, option: str
) -> None:
    domain, work, _ = _domain(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])

    async def left() -> timedelta | None:
        expires_at = (await active(scheduler, handle.id)).expires_at
        return None if expires_at is None else expires_at - manual_clock.now()

    async with scheduler.running():
        await scheduler.group("g").pause()
        await manual_clock.advance(50)
        due = 2000 if option == "run_after" else manual_clock.now() + timedelta(days=1)
        handle = await work.options(group="g", ttl=60, **{option: due}).submit()
        await manual_clock.advance(20)
        assert await left() == timedelta(seconds=60)
        await manual_clock.jump(step)
        await manual_clock.advance(100)
        assert await left() == timedelta(seconds=60), "the pause began before the task was submitted"
        await scheduler.group("g").resume()
        await manual_clock.advance(59.999)
        assert await left() == timedelta(milliseconds=1)


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_task_that_expired_before_the_pause_ends_during_it(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, scope: str
) -> None:
    """No dispatcher ran at the deadline, so the task is still in the queue when the pause begins."""
    domain, work, starts = _domain(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    listener = scheduler.events(TaskExpired)
    late = await work.options(group="g", ttl=1).submit()
    dependent = await work.options(group="h", depends_on=[late]).submit()
    at_once = await work.options(group="g", ttl=6).submit()
    await manual_clock.advance(5)
    await _control(scheduler, scope).pause()
    async with scheduler.running():
        await manual_clock.advance(3600)
        assert await endings(scheduler) == [(late.id, "expired"), (dependent.id, "dependency_failed")]
        event = await anext(listener)
        assert isinstance(event, TaskExpired)
        assert event.task_id == late.id
        await _control(scheduler, scope).resume()
        await manual_clock.advance(0)
    assert starts == [3605.0], "the clock of the other deadline stood still"
    assert (await at_once.record()).state == "completed"
