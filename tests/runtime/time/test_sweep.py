"""The sweep ends all tasks that expire at one moment at once, beside other work, and announces them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from taskmill import Domain, Priority, Retention, Scheduler
from taskmill.events import TaskExpired
from taskmill.runtime.planning import SweepPace
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory

STALE, LASTING, OTHER = 3_000, 5_000, 400
AGE = timedelta(seconds=30)


@pytest.mark.parametrize("priority", [Priority.LOW, Priority.NORMAL, Priority.HIGH])
async def test_thousands_that_expire_at_one_moment_are_swept_at_once_while_other_work_continues(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, priority: Priority
) -> None:
    domain = Domain("d")
    ran: list[int] = []

    @domain.task(key=lambda i: f"key-{i}", ttl=AGE, group="stale", priority=priority)
    async def stale(i: int) -> None:
        raise AssertionError("it was started after its deadline")

    @domain.task
    async def lasting(i: int) -> None: ...

    @domain.task(group="other")
    async def other(i: int) -> None:
        ran.append(i)
        if not over and (await scheduler.stats("d::stale")).count not in (0, STALE):
            beside.append(i)

    over = False
    beside: list[int] = []
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], retention=None)
    listener = scheduler.events(TaskExpired)
    handles = await scheduler.submit_many([stale.prepare(i) for i in range(STALE)])
    await scheduler.submit_many([lasting.options(run_after=3600).prepare(i) for i in range(LASTING)])
    await scheduler.submit_many([other.prepare(i) for i in range(OTHER)])
    # The deadline passes while no scheduler dispatches; from then on time stands still, so no timer can help.
    await manual_clock.advance(AGE)
    await scheduler.run_until_idle()
    over = True

    assert await scheduler.count(status="expired") == STALE
    assert await scheduler.count(status="scheduled") == LASTING
    assert sorted(ran) == list(range(OTHER))
    assert beside, "other work was started between the turns of the sweep"
    told = [await anext(listener) for _ in range(STALE)]
    assert {(event.task_id, event.dedup_key, event.age) for event in told if isinstance(event, TaskExpired)} == {
        (handle.id, f"key-{i}", AGE) for i, handle in enumerate(handles)
    }
    assert (await stale.submit(0)).kind == "inserted", "the keys are free again"


async def test_retention_counts_what_a_sweep_has_ended(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d", ttl=AGE)

    @domain.task
    async def stale(i: int) -> None: ...

    scheduler = await taskmill_scheduler(domains=[domain], retention=Retention(max_count=10))
    await scheduler.submit_many([stale.prepare(i) for i in range(1_200)])
    await manual_clock.advance(AGE)
    await scheduler.run_until_idle()
    assert await scheduler.count(status="expired") == 10


@pytest.mark.one_engine("no store is needed to keep a pace")
async def test_other_work_puts_a_sweep_off_for_no_longer_than_asked_for(manual_clock: ManualClock) -> None:
    clock = manual_clock
    for interval, rests in ((2.0, [True, False]), (600.0, [True, True]), (0.0, [False, False])):
        pace = SweepPace(clock, interval)
        began = clock.monotonic()
        await clock.advance(10)
        pace.swept(began)
        found = [pace.rests]
        await clock.advance(3)
        assert [*found, pace.rests] == rests, interval


@pytest.mark.one_engine("no store is needed to keep a pace")
async def test_the_pace_is_that_of_the_scheduler() -> None:
    async with Scheduler(expiry_sweep_interval=timedelta(minutes=1)) as scheduler, scheduler.running():
        loop = scheduler._loop
        assert loop is not None
        assert loop._planner.sweep_pace._longest == 60
