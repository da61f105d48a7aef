"""Time: delayed tasks, time-to-live, steps of the wall clock."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from taskmill import Domain, Retry, TaskFailed
from taskmill.events import TaskExpired
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.records import active, ended


async def test_a_delayed_task_starts_exactly_when_it_is_due(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: dict[str, float] = {}

    @domain.task
    async def note(name: str) -> None:
        starts[name] = manual_clock.monotonic()

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await note.options(run_after=10).submit("after")
    await note.options(run_after=timedelta(milliseconds=1)).submit("soon")
    await note.options(run_at=manual_clock.now() + timedelta(seconds=20)).submit("at")
    await note.options(run_at=manual_clock.now() - timedelta(seconds=20)).submit("past")
    assert await scheduler.count(status="scheduled") == 3
    async with scheduler.running():
        await manual_clock.advance(9.999)
        assert "after" not in starts
        await manual_clock.advance(100)
    assert starts == {"past": 0, "soon": 0.001, "after": 10, "at": 20}


async def test_future_work_does_not_keep_run_until_idle_waiting(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> None: ...

    scheduler = await taskmill_scheduler(domains=[domain])
    await work.options(run_after=1000).submit()
    await scheduler.run_until_idle()
    assert await scheduler.count(status="scheduled") == 1


@pytest.mark.parametrize("step", [timedelta(hours=3), timedelta(hours=-3)])
async def test_a_step_of_the_wall_clock_neither_hurries_nor_delays_relative_work(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, step: timedelta, any_store: str
) -> None:
    domain = Domain("d")
    starts: dict[str, float] = {}

    @domain.task
    async def note(name: str) -> None:
        starts[name] = manual_clock.monotonic()

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await note.options(run_after=60).submit("relative")
    await note.options(run_at=manual_clock.now() + timedelta(hours=4)).submit("absolute")
    async with scheduler.running():
        await manual_clock.advance(1)
        await manual_clock.jump(step)
        await note.submit("plain")
        await manual_clock.advance(0)
        assert starts == {"plain": 1}
        await manual_clock.advance(58.999)
        assert "relative" not in starts
        await manual_clock.advance(0.001)
        assert starts["relative"] == 60
        await manual_clock.advance(timedelta(hours=8))
    # An instant is a time of the wall clock: a step brings it nearer or further away.
    assert starts["absolute"] == 4 * 3600 - step.total_seconds()


async def test_a_task_not_started_within_its_time_to_live_expires_and_never_runs(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d", ttl=30)
    ran: list[str] = []

    @domain.task(key=lambda name: name)
    async def note(name: str) -> None:
        ran.append(name)

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    listener = scheduler.events(TaskExpired)
    stale = await note.submit("stale")
    lasting = await note.options(ttl=None).submit("lasting")
    await manual_clock.advance(30)
    await scheduler.run_until_idle()
    assert ran == ["lasting"]
    record = await stale.record()
    assert record.ending == "expired"  # type: ignore[union-attr]
    event = await anext(listener)
    assert (event.task_id, event.dedup_key, event.age) == (stale.id, "stale", timedelta(seconds=30))
    with pytest.raises(TaskFailed, match="expired"):
        await stale.result()
    assert (await lasting.wait()).ending == "completed"
    assert (await note.submit("stale")).kind == "inserted", "the key is free again"


async def test_expiry_happens_at_its_moment_while_dispatching(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> None: ...

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await work.options(run_after=100, ttl=10).submit()
    async with scheduler.running():
        await manual_clock.advance(9.999)
        assert (await handle.record()).status == "scheduled"  # type: ignore[union-attr]
        await manual_clock.advance(0.001)
        assert (await handle.record()).ending == "expired"  # type: ignore[union-attr]


async def test_a_time_to_live_from_the_first_attempt_bounds_the_retries(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:

    domain = Domain("d", ttl=10, ttl_from="first_attempt", retry=Retry.constant(100, delay=4))
    starts: list[float] = []

    @domain.task
    async def fail() -> None:
        starts.append(manual_clock.monotonic())
        raise OSError("no")

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await fail.submit()
    await manual_clock.advance(100)
    assert (await active(scheduler, handle.id)).expires_at is None
    async with scheduler.running():
        await manual_clock.advance(50)
    assert starts == [100, 104, 108]
    assert (await handle.wait()).ending == "expired"


async def test_a_time_to_live_of_zero_starts_at_once_or_never(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d", ttl=0)
    ran: list[int] = []

    @domain.task
    async def work(n: int) -> None:
        ran.append(n)

    scheduler = await taskmill_scheduler(domains=[domain])
    await work.submit(1)
    await scheduler.run_until_idle()
    late = await work.submit(2)
    await manual_clock.advance(0.001)
    await scheduler.run_until_idle()
    assert ran == [1]
    assert (await late.wait()).ending == "expired"


@pytest.mark.one_engine("no store is opened")
def test_a_clock_may_be_used_in_one_event_loop_after_the_other() -> None:
    clock = ManualClock()

    async def wait_for_a_thread() -> None:
        clock.work_begins()
        asyncio.get_running_loop().call_later(0.01, clock.work_ends)
        await clock.advance(1)

    asyncio.run(wait_for_a_thread())
    asyncio.run(wait_for_a_thread())
    assert clock.monotonic() == 2


@pytest.mark.parametrize("step", [timedelta(hours=3), timedelta(hours=-3)])
@pytest.mark.parametrize("delay", [{}, {"run_after": 500}, {"run_at": timedelta(days=1)}])
async def test_after_a_step_of_the_wall_clock_the_times_of_a_task_agree(
    taskmill_scheduler: SchedulerFactory,
    manual_clock: ManualClock,
    step: timedelta,
    delay: dict[str, Any],
    any_store: str,
) -> None:
    """``created_at`` moves with the deadline: by the clock as it is now, it says when the task was submitted."""
    domain = Domain("d")

    @domain.task
    async def note() -> None: ...

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    listener = scheduler.events(TaskExpired)
    await scheduler.group("paused").pause()
    blocker = await note.options(group="paused").submit()
    options = {name: manual_clock.now() + at if name == "run_at" else at for name, at in delay.items()}
    if not options:
        options["depends_on"] = [blocker]
    async with scheduler.running():
        handle = await note.options(ttl=30, **options).submit()
        await manual_clock.advance(10)
        await manual_clock.jump(step)
        await manual_clock.advance(0)
        record = await active(scheduler, handle.id)
        assert manual_clock.now() - record.created_at == timedelta(seconds=10)
        assert record.expires_at is not None
        assert record.expires_at - record.created_at == timedelta(seconds=30)
        await manual_clock.advance(20)
        event = await anext(listener)
    past = await ended(scheduler, handle.id)
    assert isinstance(event, TaskExpired)
    assert event.age == past.ended_at - past.created_at == timedelta(seconds=30)
