"""Pausing and resuming the scheduler, a domain or a group: what starts, what continues, what is shown."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskmill import Domain, Scheduler
from taskmill.events import GroupPaused, GroupResumed
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.records import active, endings


def _domain(clock: ManualClock) -> tuple[Domain, Any, list[tuple[str, float]]]:
    domain = Domain("d")
    starts: list[tuple[str, float]] = []

    @domain.task
    async def work(name: str = "it", seconds: float = 0) -> None:
        starts.append((name, clock.monotonic()))
        if seconds:
            await clock.sleep(seconds)

    return domain, work, starts


def _control(scheduler: Scheduler, scope: str) -> Any:
    return {"scheduler": scheduler, "domain": scheduler.domain("d"), "group": scheduler.group("g")}[scope]


SCOPES = ["scheduler", "domain", "group"]


@pytest.mark.parametrize("scope", SCOPES)
async def test_nothing_starts_while_paused_and_everything_after(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, scope: str
) -> None:
    domain, work, starts = _domain(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        await _control(scheduler, scope).pause()
        waiting = await work.options(group="g").submit("waiting")
        later = await work.options(group="g", run_after=5).submit("later")
        blocked = await work.options(group="g", depends_on=[waiting]).submit("blocked")
        await manual_clock.advance(10)
        during = list(starts)
        statuses = [(await active(scheduler, handle.id)).status for handle in (waiting, later, blocked)]
        await _control(scheduler, scope).resume()
        await manual_clock.advance(1)
    assert during == []
    assert statuses == ["paused", "paused", "blocked"], "a task that becomes due while paused waits"
    assert starts == [("waiting", 10), ("later", 10), ("blocked", 10)]


@pytest.mark.parametrize("scope", SCOPES)
async def test_running_tasks_continue_and_the_tasks_they_release_wait(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, scope: str
) -> None:
    domain, work, starts = _domain(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    running = await work.options(group="g").submit("first", 5)
    next_one = await work.options(group="g", depends_on=[running]).submit("next")
    async with scheduler.running():
        await manual_clock.advance(1)
        await _control(scheduler, scope).pause()
        await manual_clock.advance(9)
        record = await scheduler.get(running.id)
        released = await active(scheduler, next_one.id)
        during = list(starts)
        await _control(scheduler, scope).resume()
        await manual_clock.advance(0)
    assert getattr(record, "ending", None) == "completed"
    assert (released.status, during) == ("paused", [("first", 0)])
    assert starts[1:] == [("next", 10)]


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_pause_is_seen_wherever_one_looks(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, scope: str
) -> None:
    domain, work, _ = _domain(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    handle = await work.options(group="g").submit()
    await _control(scheduler, scope).pause()
    assert (await handle.record()).status == "paused"
    assert [record.id for record in await scheduler.tasks(status="paused")] == [handle.id]
    assert await scheduler.tasks(status="pending") == []
    assert (await scheduler.count(status="paused"), await scheduler.count(status="pending")) == (1, 0)
    found = await scheduler.find("d::work", "none")
    assert found is None
    snapshot = await scheduler.snapshot()
    assert (snapshot.counts["paused"], snapshot.counts["pending"]) == (1, 0)
    assert snapshot.paused == (scope == "scheduler")
    assert snapshot.paused_groups == (["g"] if scope == "group" else [])
    assert snapshot.paused_domains == (["d"] if scope == "domain" else [])
    assert snapshot.groups["g"].paused == (scope == "group")
    explained = await handle.explain()
    assert explained.status == "paused"
    assert [hold.reason for hold in explained.holds] == [f"{scope}_paused"]
    await _control(scheduler, scope).resume()
    assert (await handle.record()).status == "pending"
    snapshot = await scheduler.snapshot()
    assert (snapshot.paused, snapshot.paused_groups, snapshot.paused_domains) == (False, [], [])


async def test_other_groups_and_domains_continue(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain, work, starts = _domain(manual_clock)
    other = Domain("other")

    @other.task
    async def elsewhere(name: str) -> None:
        starts.append((name, manual_clock.monotonic()))

    scheduler = await taskmill_scheduler(domains=[domain, other], max_concurrency=1)
    await scheduler.group("g").pause()
    await scheduler.domain("d").pause()
    for number in range(3):
        await work.options(group="g", priority=0).submit(f"held {number}")
        await work.options(priority=0).submit(f"held {number}")
        await elsewhere.options(group="g").submit(f"held {number}")
        await elsewhere.options(priority=200).submit(f"free {number}")
    await scheduler.run_until_idle(timeout=10)
    assert [name for name, _ in starts] == ["free 0", "free 1", "free 2"]


@pytest.mark.parametrize("order", list(itertools.permutations(SCOPES)))
async def test_pauses_compose_in_any_order(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, order: tuple[str, ...]
) -> None:
    domain, work, starts = _domain(manual_clock)
    scheduler = await taskmill_scheduler(domains=[domain])
    deadlines = []
    handle = await work.options(group="g", ttl=60).submit()
    for scope in SCOPES:
        await _control(scheduler, scope).pause()
        await manual_clock.advance(1)
    async with scheduler.running():
        for scope in order:
            await manual_clock.advance(100)
            deadlines.append((await active(scheduler, handle.id)).expires_at)
            await _control(scheduler, scope).resume()
        await manual_clock.advance(0)
    assert starts == [("it", 303)], "it starts when the last pause has ended"
    assert [at and at - manual_clock.now() for at in deadlines] == [timedelta(seconds=s) for s in (-140, -40, 60)]


async def test_pausing_twice_and_resuming_twice_are_no_errors(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain, work, starts = _domain(manual_clock)
    scheduler = await taskmill_scheduler(domains=[domain])
    for control in (scheduler, scheduler.domain("d"), scheduler.group("g"), scheduler.group(None)):
        await control.resume()
        await control.pause()
        await control.pause()
        await control.resume()
        await control.resume()
    await work.submit()
    await scheduler.run_until_idle(timeout=10)
    assert len(starts) == 1


async def test_ungrouped_tasks_are_a_group_that_can_be_paused(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain, work, starts = _domain(manual_clock)
    scheduler = await taskmill_scheduler(domains=[domain])
    await scheduler.group(None).pause()
    handle = await work.submit("ungrouped")
    await work.options(group="g").submit("grouped")
    await scheduler.run_until_idle(timeout=10)
    assert [name for name, _ in starts] == ["grouped"]
    assert (await scheduler.snapshot()).paused_groups == [""]
    assert "ungrouped tasks" in str(await handle.explain())
    await scheduler.group(None).resume()
    await scheduler.run_until_idle(timeout=10)
    assert [name for name, _ in starts] == ["grouped", "ungrouped"]


# Timed pauses


async def test_a_timed_pause_ends_on_the_millisecond(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain, work, starts = _domain(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    events = scheduler.events(GroupPaused, GroupResumed)
    await scheduler.group("g").pause(duration=10)
    await scheduler.group("h").pause(until=manual_clock.now() + timedelta(seconds=20))
    await work.options(group="g").submit("g")
    await work.options(group="h").submit("h")
    async with scheduler.running():
        await manual_clock.advance(9.999)
        before = list(starts)
        await manual_clock.advance(30)
    assert before == []
    assert starts == [("g", 10), ("h", 20)]
    seen = [await anext(events) for _ in range(4)]
    assert [type(event).__name__ for event in seen] == ["GroupPaused", "GroupPaused", "GroupResumed", "GroupResumed"]
    assert [getattr(event, "group", None) for event in seen] == ["g", "h", "g", "h"]
    assert [(event.at - seen[0].at).total_seconds() for event in seen[2:]] == [10, 20]


async def test_a_pause_can_be_made_longer_shorter_and_endless(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain, work, starts = _domain(manual_clock)
    scheduler = await taskmill_scheduler(domains=[domain])
    group = scheduler.group("g")
    await group.pause(duration=10)
    await work.options(group="g").submit()
    async with scheduler.running():
        await manual_clock.advance(5)
        await group.pause(duration=10)
        await manual_clock.advance(9)
        assert starts == []
        await group.pause()
        await manual_clock.advance(100)
        assert starts == []
        await group.pause(duration=2)
        await manual_clock.advance(3)
    assert starts == [("it", 116)]


async def test_a_pause_made_endless_by_another_scheduler_does_not_end_at_its_old_time(
    manual_clock: ManualClock, tmp_path: Path
) -> None:
    domain, work, starts = _domain(manual_clock)
    file = tmp_path / "tasks.db"
    async with (
        Scheduler(file, domains=[domain], clock=manual_clock) as dispatching,
        Scheduler(file, domains=[domain], clock=manual_clock) as other,
    ):
        await dispatching.group("g").pause(duration=10)
        await other.submit(work.options(group="g").prepare())
        async with dispatching.running():
            await manual_clock.advance(9.999)
            await other.group("g").pause()
            await manual_clock.advance(60)
        paused = (await other.snapshot()).paused_groups
    assert (starts, paused) == ([], ["g"])


# Idle


async def test_run_until_idle_returns_though_paused_tasks_wait(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain, work, starts = _domain(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    for scope in SCOPES:
        await _control(scheduler, scope).pause()
        await work.options(group="g", ttl=5).submit()
        await work.options(group="g", run_after=1).submit()
        await manual_clock.advance(10)
        await asyncio.wait_for(scheduler.run_until_idle(), 10)
        assert starts == []
        await _control(scheduler, scope).resume()
        await asyncio.wait_for(scheduler.run_until_idle(), 10)
        assert len(starts) == 2, "the deadline of the first has not passed, because it was paused all the time"
        starts.clear()


# Verbs on paused tasks


async def test_paused_tasks_can_be_cancelled_replaced_requeued_and_reordered(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain, work, starts = _domain(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=1)
    await scheduler.group("g").pause()
    paused = work.options(group="g")
    cancelled = await paused.submit("cancelled")
    replaced = await paused.options(group="g", key="k").submit("replaced")
    await manual_clock.advance(1)
    requeued = await paused.options(group="g", key="r").submit("requeued")
    first = await paused.submit("late but urgent")
    async with scheduler.running():
        assert await cancelled.cancel()
        new = await paused.options(group="g", key="k", on_duplicate="supersede").submit("new")
        again = await paused.options(group="g", key="r", on_duplicate="requeue").submit("requeued")
        await scheduler.set_priority(first.id, 1)
        await manual_clock.advance(5)
        during = list(starts)
        ended = await endings(scheduler)
        assert (await active(scheduler, new.id)).status == "paused"
        await scheduler.group("g").resume()
        await manual_clock.advance(0)
    assert (during, again.id) == ([], requeued.id)
    assert ended == [(cancelled.id, "cancelled"), (replaced.id, "superseded")]
    assert [name for name, _ in starts] == ["late but urgent", "new", "requeued"]


async def test_a_running_task_of_a_paused_group_can_be_cancelled_and_superseded(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain, work, starts = _domain(manual_clock)
    undone: list[str] = []

    @work.on_cancel  # type: ignore[untyped-decorator]
    async def undo(name: str = "it", seconds: float = 0) -> None:
        undone.append(name)

    scheduler = await taskmill_scheduler(domains=[domain])
    cancelled = await work.options(group="g").submit("cancelled", 100)
    await work.options(group="g", key="k").submit("replaced", 100)
    async with scheduler.running():
        await manual_clock.advance(1)
        await scheduler.group("g").pause()
        assert await cancelled.cancel()
        new = await work.options(group="g", key="k", on_duplicate="supersede").submit("new")
        await manual_clock.advance(1)
        status = (await active(scheduler, new.id)).status
        during = sorted(undone)
        await scheduler.group("g").resume()
        await manual_clock.advance(1)
    assert during == ["cancelled", "replaced"], "a pause delays no hook"
    assert status == "paused"
    assert starts[-1] == ("new", 2)


# Restarts


async def test_pauses_survive_a_restart_and_end_without_a_dispatcher(manual_clock: ManualClock, tmp_path: Path) -> None:
    domain, work, starts = _domain(manual_clock)
    file = tmp_path / "tasks.db"

    def opened() -> Scheduler:
        return Scheduler(file, domains=[domain], clock=manual_clock)

    async with opened() as scheduler:
        for group in ("timed", "endless"):
            await work.options(group=group, ttl=100).submit(group)
        await work.submit("all")
        await scheduler.group("timed").pause(duration=30)
        await scheduler.group("endless").pause()
        await scheduler.pause()
    await manual_clock.advance(10)
    async with opened() as scheduler:
        assert (await scheduler.snapshot()).paused_groups == ["endless", "timed"]
        assert (await scheduler.snapshot()).paused
        await scheduler.run_until_idle(timeout=10)
        await scheduler.resume()
        await scheduler.run_until_idle(timeout=10)
        assert starts == [("all", 10)]
    await manual_clock.advance(50)
    async with opened() as scheduler:
        (timed,) = await scheduler.tasks(group="timed")
        (endless,) = await scheduler.tasks(group="endless")
        assert (timed.status, endless.status) == ("pending", "paused"), "also before a scheduler dispatches"
        assert (await scheduler.snapshot()).paused_groups == ["endless"]
        assert await scheduler.count(status="paused") == 1
        left = [record.expires_at and record.expires_at - manual_clock.now() for record in (timed, endless)]
        assert left == [timedelta(seconds=70), timedelta(seconds=100)], "30 s of 60 count for one, none for the other"
        await scheduler.run_until_idle(timeout=10)
        assert starts[1:] == [("timed", 60)]
        await scheduler.group("endless").resume()
        await scheduler.run_until_idle(timeout=10)
    assert starts[2:] == [("endless", 60)]
