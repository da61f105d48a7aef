"""Preempted tasks return: when, to which place, with their saved state, also after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from taskmill import Domain, Priority, RateLimit, Scheduler
from taskmill.events import TaskDispatched, TaskPreempted, TaskResumed
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.preempting.work import Work
from tests.runtime.records import active, ended, endings


async def test_the_least_urgent_is_preempted_keeps_its_saved_state_and_returns(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[work.domain], shutdown_grace=0, max_concurrency=2)
    events = scheduler.events(TaskPreempted, TaskResumed, TaskDispatched)
    normal = await work.task.submit("normal")
    low = await work.task.options(priority=Priority.LOW).submit("low")
    async with scheduler.running():
        await manual_clock.advance(4)
        critical = await work.task.options(priority=Priority.CRITICAL).submit("critical", 3)
        await manual_clock.advance(1)
        record = await active(scheduler, low.id)
        explained = await low.explain()
        counted = await scheduler.count(status="paused")
        await manual_clock.advance(100)
    assert work.of("stop") == [("low", 4)]
    assert work.of("start") == [("normal", 0), ("low", 0), ("critical", 4), ("low", 7)]
    assert work.of("end") == [("critical", 7), ("normal", 10), ("low", 13)], "low continued with its fifth second"
    assert (record.status, record.retries, record.last_error, counted) == ("paused", 0, None, 1)
    assert [hold.reason for hold in explained.holds] == ["preempted"]
    history = await ended(scheduler, low.id)
    assert (history.ending, history.retries, history.attempt) == ("completed", 0, 2)
    seen = [(type(event).__name__, getattr(event, "task_id", 0)) for event in [await anext(events) for _ in range(6)]]
    about_low = [kind for kind, id in seen if id == low.id]
    assert [kind for kind in about_low if kind != "TaskDispatched"] == ["TaskPreempted", "TaskResumed"]
    assert about_low.count("TaskDispatched") == 2
    assert {id for _, id in seen} == {normal.id, low.id, critical.id}


# Returning


async def test_a_preempted_task_returns_only_when_no_preemptor_waits_or_runs(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    low = await work.task.options(priority=200).submit("low")
    async with scheduler.running():
        await manual_clock.advance(1)
        for n in range(5):
            await work.task.options(priority=0).submit(f"critical {n}", 2)
        statuses = []
        for _ in range(9):
            await manual_clock.advance(1)
            statuses.append((await active(scheduler, low.id)).status)
        await manual_clock.advance(100)
    assert set(statuses) == {"paused"}
    assert work.of("stop") == [("low", 1)], "it was preempted once, not once for each"
    assert [name for name, _ in work.of("start")] == ["low", *(f"critical {n}" for n in range(5)), "low"]
    assert work.of("end")[-1] == ("low", 20)


@pytest.mark.parametrize("held_by", ["group rate", "type rate", "group pause", "domain pause"])
async def test_a_preemptor_that_may_not_start_keeps_no_task_paused_and_gets_its_slot_when_it_may(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, held_by: str
) -> None:
    work, urgent = Work(manual_clock), Domain("u")
    starts: list[float] = []

    @urgent.task(group="g", priority=0)
    async def critical() -> None:
        starts.append(manual_clock.monotonic())
        await manual_clock.sleep(1)

    scheduler = await taskmill_scheduler(domains=[work.domain, urgent], shutdown_grace=0, max_concurrency=1)
    rate = RateLimit(1, 20)
    match held_by:
        case "group rate":
            await scheduler.group("g").set(rate=rate)
        case "type rate":
            await scheduler.set_rate_limit("u::critical", rate)
    await work.task.options(priority=200).submit("low", 30)
    async with scheduler.running():
        await manual_clock.advance(1)
        await critical.submit()
        await manual_clock.advance(0)
        await critical.submit()
        control = scheduler.group("g") if held_by == "group pause" else scheduler.domain("u")
        if held_by.endswith("pause"):
            await control.pause()
        await manual_clock.advance(20)
        if held_by.endswith("pause"):
            await control.resume()
        await manual_clock.advance(40)
    assert starts == [1, 21]
    assert work.of("start") == [("low", 0), ("low", 2), ("low", 22)], "the slot is not left idle meanwhile"
    assert [name for name, _ in work.of("end")] == ["low"]


async def test_many_preemptors_do_not_thrash(taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=4)
    for n in range(4):
        await work.task.options(priority=200).submit(f"low {n}", 8)
    async with scheduler.running():
        await manual_clock.advance(1)
        for n in range(20):
            await work.task.options(priority=0).submit(f"critical {n}", 2)
        await manual_clock.advance(200)
        counts = (await scheduler.snapshot()).counts
    assert len(work.of("stop")) == 4, "each slot was freed once"
    assert (counts["completed"], counts["paused"]) == (24, 0)


async def test_a_stream_of_preemptors_that_come_and_go_stops_a_task_at_most_once_each(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    await work.task.options(priority=200).submit("low", 10)
    async with scheduler.running():
        for n in range(4):
            await manual_clock.advance(2)
            await work.task.options(priority=0).submit(f"critical {n}", 1)
        await manual_clock.advance(100)
    assert len(work.of("stop")) == 4
    assert work.of("end")[-1] == ("low", 14), "it lost no finished second"


async def test_a_returning_task_comes_before_tasks_that_have_waited_less(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    await manual_clock.advance(10)
    await work.task.submit("first", 3)
    await manual_clock.advance(10)
    async with scheduler.running():
        await manual_clock.advance(1)
        for n in range(3):
            await work.task.submit(f"later {n}", 3)
        await work.task.options(priority=0).submit("critical", 2)
        await manual_clock.advance(60)
    names = [name for name, _ in work.of("start")]
    assert names[:2] == ["first", "critical"]
    assert names.index("first", 1) <= 3, "at most the task that took the slot at once comes between"
    assert len(names) == 6


# Verbs on preempted tasks


async def test_a_preempted_task_can_be_cancelled_and_superseded(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    work = Work(manual_clock)
    hooks: list[str] = []

    @work.task.on_cancel
    async def undo(name: str, seconds: float = 10) -> None:
        hooks.append(name)

    scheduler = await taskmill_scheduler(store=any_store, domains=[work.domain], shutdown_grace=0, max_concurrency=2)
    cancelled = await work.task.options(priority=200).submit("cancelled")
    replaced = await work.task.options(priority=200, key="k").submit("replaced")
    async with scheduler.running():
        await manual_clock.advance(1)
        for n in range(2):
            await work.task.options(priority=0).submit(f"critical {n}", 5)
        await manual_clock.advance(1)
        assert await cancelled.cancel()
        new = await work.task.options(key="k", on_duplicate="supersede").submit("new", 1)
        await manual_clock.advance(30)
    found = dict(await endings(scheduler))
    assert (found[cancelled.id], found[replaced.id], found[new.id]) == ("cancelled", "superseded", "completed")
    assert [name for name, _ in work.of("start")].count("cancelled") == 1
    assert work.of("start")[-1] == ("new", 6)


async def test_a_task_preempted_before_a_restart_returns_after_it(manual_clock: ManualClock, tmp_path: Path) -> None:
    work = Work(manual_clock)
    file = tmp_path / "tasks.db"

    def opened() -> Scheduler:
        return Scheduler(file, domains=[work.domain], clock=manual_clock, shutdown_grace=0, max_concurrency=1)

    async with opened() as scheduler:
        low = await work.task.options(priority=200).submit("low", 5)
        async with scheduler.running():
            await manual_clock.advance(2)
            await work.task.options(priority=0).submit("critical", 5)
            await manual_clock.advance(1)
            await scheduler.stop(0)
        assert (await active(scheduler, low.id)).status == "paused"
    async with opened() as scheduler:
        async with scheduler.running():
            await manual_clock.advance(60)
        record = await ended(scheduler, low.id)
    assert (record.ending, record.retries) == ("completed", 0)
    assert [name for name, _ in work.of("start")] == ["low", "critical", "critical", "low"]


async def test_run_until_idle_waits_for_preempted_tasks(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    await work.task.options(priority=200).submit("low", 5)
    running = asyncio.create_task(scheduler.run_until_idle())
    await manual_clock.advance(1)
    await work.task.options(priority=0).submit("critical", 5)
    await manual_clock.advance(60)
    await asyncio.wait_for(running, 10)
    assert [name for name, _ in work.of("end")] == ["critical", "low"]


async def test_a_preempted_task_of_a_paused_group_waits_and_the_scheduler_is_idle(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    low = await work.task.options(priority=200, group="g").submit("low", 5)
    async with scheduler.running():
        await manual_clock.advance(2)
        await scheduler.group("g").pause()
        await work.task.options(priority=0).submit("critical", 5)
        await manual_clock.advance(20)
        status = (await active(scheduler, low.id)).status
    assert status == "paused"
    await asyncio.wait_for(scheduler.run_until_idle(), 10)
    await scheduler.group("g").resume()
    async with scheduler.running():
        await manual_clock.advance(20)
    assert (await ended(scheduler, low.id)).ending == "completed"
