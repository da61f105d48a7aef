"""Corner cases of fairness: charges, returns, lent urgency, clock steps, pauses."""

from __future__ import annotations

import asyncio

import pytest

from taskmill import Aging, Context, Domain
from taskmill.dispatch.shares import Shares
from taskmill.events import TaskAged, TaskResumed
from taskmill.model.cluster import Demand
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


@pytest.mark.one_engine("no store is opened")
def test_a_debt_does_not_grow_with_the_groups_that_happen_to_be_there_when_it_is_made() -> None:
    shares = Shares()
    shares.rules_changed(shared=True, weights_changed=False)
    for name in "ab":
        shares.set_demand(name, Demand(0, 1_000_000, 2))
    shares.compute(1)
    shares.started("a", by_share=True)
    shares.set_demand("a", Demand(1, 1_000_000, 2))
    tenants = [f"tenant {number}" for number in range(500)]
    for name in tenants:
        shares.set_demand(name, Demand(0, 1, 2))
    shares.compute(1)
    shares.ended("a", 3_600_000)
    shares.set_demand("a", Demand(0, 1_000_000, 2))
    for name in tenants:
        shares.started(name, by_share=True)
        shares.ended(name, 100)
        shares.set_demand(name, None)
        shares.compute(1)
    minutes = 0
    while (shares.key("a") or (False, 0.0)) >= (shares.key("b") or (False, 0.0)):
        shares.started("b", by_share=True)
        shares.set_demand("b", Demand(1, 1_000_000, 2))
        shares.ended("b", 60_000)
        shares.set_demand("b", Demand(0, 1_000_000, 2))
        minutes += 1
        assert minutes <= 90
    assert minutes >= 30


async def test_a_preempted_task_returns_before_less_urgent_work_that_keeps_starting(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    order: list[str] = []
    done = asyncio.Event()

    @domain.task
    async def hold(name: str) -> None:
        order.append(name)
        if name == "high" and order.count("high") == 1:
            await asyncio.Event().wait()
        if name == "critical":
            await done.wait()

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1, shutdown_grace=0)
    async with scheduler.running():
        await hold.options(priority=64).submit("high")
        await manual_clock.advance(0)
        await hold.options(priority=0).submit("critical")
        await manual_clock.advance(0)
        await scheduler.submit_many(hold.options(priority=192).prepare("low") for _ in range(50))
        await manual_clock.advance(0)
        done.set()
        await manual_clock.advance(0)
    assert order[:3] == ["high", "critical", "high"]
    assert order[3:] == ["low"] * 50


async def test_tasks_ahead_are_counted_while_another_group_is_paused(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task
    async def hold() -> None:
        await asyncio.Event().wait()

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1, shutdown_grace=0)
    found: list[int] = []
    async with scheduler.running():
        handles = [await hold.submit() for _ in range(5)]
        await hold.options(group="other", priority=1).submit()
        await manual_clock.advance(0)
        found.append((await handles[-1].explain()).ahead)
        await scheduler.group("other").pause()
        await manual_clock.advance(0)
        found.append((await handles[-1].explain()).ahead)
        await scheduler.group("other").pause(duration=60)
        await manual_clock.advance(0)
        found.append((await handles[-1].explain()).ahead)
    assert found[1:] == [found[0] - 1] * 2
    assert found[1] >= 3


async def test_a_dependency_of_a_more_urgent_task_is_not_preempted(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    cancelled: list[str] = []

    @domain.task
    async def hold(ctx: Context, name: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(name)
            raise

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1, shutdown_grace=0)
    async with scheduler.running():
        first = await hold.options(priority=192).submit("first")
        await manual_clock.advance(0)
        await hold.options(priority=0, depends_on=first).submit("second")
        await manual_clock.advance(0)
        await hold.options(priority=0).submit("third")
        await manual_clock.advance(1)
        kept, shown = list(cancelled), (await first.record()).effective_priority
        await scheduler.set_priority(first.id, 255)
        await manual_clock.advance(1)
        still_kept = list(cancelled)
    assert (kept, still_kept, shown) == ([], [], 0)


async def test_each_line_is_announced_once_whatever_pauses_and_clock_steps_come_between(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task
    async def hold() -> None:
        await asyncio.Event().wait()

    aging = Aging(grace=60, interval=10, step=32, ceiling=64)
    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1, shutdown_grace=0, aging=aging)
    events = scheduler.events(TaskAged)
    async with scheduler.running():
        await hold.submit()
        await manual_clock.advance(0)
        await hold.options(priority=192).submit()
        await manual_clock.advance(85)
        await scheduler.pause()
        await manual_clock.advance(600)
        await scheduler.resume()
        await manual_clock.advance(2)
        await manual_clock.jump(3600)
        await manual_clock.advance(2)
        await manual_clock.jump(-7200)
        await manual_clock.advance(60)
    await events.aclose()
    assert [event.effective_priority async for event in events if isinstance(event, TaskAged)] == [128, 64]


@pytest.mark.parametrize("change", ["cap", "pause", "resume"])
async def test_a_change_of_another_group_loses_no_news_of_aging(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, change: str
) -> None:
    domain = Domain("d")

    @domain.task
    async def hold() -> None:
        await asyncio.Event().wait()

    aging = Aging(grace=10, interval=10, step=64, ceiling=64)
    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1, shutdown_grace=0, aging=aging)
    events = scheduler.events(TaskAged)
    other = scheduler.group("other")
    if change == "resume":
        await other.pause()
    async with scheduler.running():
        await hold.options(priority=64).submit()
        await manual_clock.advance(0)
        aged = [await hold.submit()]
        await manual_clock.advance(0.3)
        # It crosses the level soon after the first, so it is not announced at once.
        aged.append(await hold.submit())
        await manual_clock.advance(20.1)
        await (other.set(cap=3) if change == "cap" else other.pause() if change == "pause" else other.resume())
        await manual_clock.advance(60)
    await events.aclose()
    assert [event.task_id async for event in events if isinstance(event, TaskAged)] == [task.id for task in aged]


async def test_a_pause_for_a_time_lasts_that_long_whatever_the_clock_does(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    started: list[float] = []

    @domain.task
    async def note() -> None:
        started.append(manual_clock.monotonic())

    scheduler = await taskmill_scheduler(domains=[domain])
    begun = manual_clock.monotonic()
    async with scheduler.running():
        for step in (3600, -3600):
            await scheduler.group(None).pause(duration=600)
            await note.submit()
            await manual_clock.advance(100)
            await manual_clock.jump(step)
            await manual_clock.advance(700)
    assert [round(at - begun) for at in started] == [600, 1400]


async def test_a_task_does_not_age_by_a_clock_step_while_it_runs(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    go = asyncio.Event()

    @domain.task
    async def fail() -> None:
        await go.wait()
        raise ValueError("again")

    aging = Aging(grace=60, interval=10, step=8, ceiling=0)
    scheduler = await taskmill_scheduler(domains=[domain], aging=aging)
    async with scheduler.running():
        handle = await fail.options(priority=200).submit()
        await manual_clock.advance(0)
        await manual_clock.jump(86_400)
        await manual_clock.advance(0)
        await scheduler.pause()
        go.set()
        await manual_clock.advance(0)
        found = (await handle.record()).effective_priority
    assert found == 200


async def test_waiting_for_a_preemptor_is_over_when_it_has_ended(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task
    async def work(seconds: float) -> None:
        until = manual_clock.monotonic() + seconds
        while manual_clock.monotonic() < until:
            await manual_clock.wait(asyncio.Event(), until)

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=2, shutdown_grace=0)
    events = scheduler.events(TaskResumed)
    async with scheduler.running():
        for _ in range(2):
            await work.options(priority=192).submit(100)
        await manual_clock.advance(1)
        await work.options(priority=0).submit(5)
        await manual_clock.advance(10)
    await events.aclose()
    assert [event.at.second async for event in events] == [6]
