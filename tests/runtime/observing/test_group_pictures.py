"""Groups in a snapshot: how slots are divided, which pauses apply and for how long, and which scheduler dispatches."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from taskmill import Domain, Group, Scheduler, Submission
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.records import sees_a_dispatcher

domain = Domain("d")


@domain.task
async def work() -> None:
    return


async def test_a_snapshot_says_whether_groups_have_shares(taskmill_scheduler: SchedulerFactory) -> None:
    scheduler = await taskmill_scheduler(domains=[domain])
    assert not (await scheduler.snapshot()).is_shared
    await scheduler.group("a").set(cap=3)
    assert not (await scheduler.snapshot()).is_shared
    await scheduler.group("a").set(weight=3)
    assert (await scheduler.snapshot()).is_shared
    await scheduler.reset_group_weights()
    assert not (await scheduler.snapshot()).is_shared
    minimum = await taskmill_scheduler(default_group=Group(min_slots=1))
    assert (await minimum.snapshot()).is_shared


async def test_a_snapshot_says_until_when_a_group_is_paused(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    until = manual_clock.now() + timedelta(minutes=10)
    await scheduler.group("timed").pause(until=until)
    await scheduler.group("open").pause()
    groups = (await scheduler.snapshot()).groups
    assert (groups["timed"].paused, groups["timed"].paused_until) == (True, until)
    assert (groups["open"].paused, groups["open"].paused_until) == (True, None)


async def test_a_pause_whose_time_is_over_is_none_without_a_dispatcher(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    scheduler = await taskmill_scheduler(domains=[domain])
    await work.options(group="a").submit()
    await scheduler.group("a").pause(duration=10)
    await manual_clock.advance(10)
    picture = await scheduler.snapshot()
    assert picture.paused_groups == []
    assert not picture.groups["a"].paused
    assert picture.groups["a"].paused_until is None


async def test_a_snapshot_says_whether_another_scheduler_dispatches(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    async with Scheduler(file, domains=[domain]) as one, Scheduler(file) as other:
        before = await other.snapshot()
        async with one.running():
            await sees_a_dispatcher(other)
            during = await other.snapshot()
            own = await one.snapshot()
    assert (before.dispatching, before.has_dispatcher) == (False, False)
    assert (during.dispatching, during.has_dispatcher) == (False, True)
    assert (own.dispatching, own.has_dispatcher) == (True, True)


async def test_tasks_without_a_handler_have_no_share_in_snapshots_as_in_dispatching(
    manual_clock: ManualClock, tmp_path: Path
) -> None:
    file, groups = tmp_path / "tasks.db", {"a": Group(weight=3)}
    gone = Domain("gone")

    @gone.task(group="a")
    async def lost() -> None:
        return

    busy = Domain("busy")

    @busy.task(group="b")
    async def hold() -> None:
        await manual_clock.sleep(10)

    async with Scheduler(file, domains=[gone], clock=manual_clock) as before:
        await before.submit_many([lost.prepare() for _ in range(9)])
    async with Scheduler(file, domains=[busy], groups=groups, max_concurrency=4, clock=manual_clock) as scheduler:
        await scheduler.submit_many([hold.prepare() for _ in range(10)])
        stuck = await scheduler.submit(Submission("gone::lost", {}))  # a known name without a handler
        async with scheduler.running():
            await manual_clock.advance(1)
            pictures = (await scheduler.snapshot()).groups
            reasons = [hold.reason for hold in (await scheduler.explain(stuck.id)).holds]
            *_, last = await scheduler.tasks(group="b")
            said = str(await scheduler.explain(last.id))
            await scheduler.pause()
            await manual_clock.advance(30)
    assert {name: (each.slots, each.running, each.pending) for name, each in pictures.items()} == {
        "a": (0, 0, 10),
        "b": (4, 4, 6),
    }
    assert "no_handler" in reasons
    assert "runs 4 tasks, and its share is 4 of 4 slots" in said
