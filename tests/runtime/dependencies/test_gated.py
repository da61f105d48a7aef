"""A dependent of a replacement also waits for the attempt behind its gate, even if the replacement never starts."""

from __future__ import annotations

import asyncio

import pytest

from taskmill import Domain, GiveUp, Retry, Scheduler
from taskmill.events import TaskUnblocked
from taskmill.handle import Handle
from taskmill.model.records import HistoryRecord
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


class Stage:
    """A keyed task that is slow to stop, and tasks that record that they ran."""

    def __init__(self) -> None:
        self.domain = Domain("d", retry=Retry.none())
        self.seen: list[str] = []
        self.hook_may_end = asyncio.Event()
        self.go = asyncio.Event()

        @self.domain.task(key=lambda version: "k", on_duplicate="supersede")
        async def keyed(version: int) -> None:
            self.seen.append(f"keyed {version}")
            await asyncio.Event().wait()

        @keyed.on_cancel
        async def stopped(version: int) -> None:
            await self.hook_may_end.wait()
            self.seen.append(f"stopped {version}")

        @self.domain.task
        async def note(name: str) -> None:
            self.seen.append(name)

        @self.domain.task
        async def bad() -> None:
            await self.go.wait()
            raise GiveUp("bad")

        self.keyed = keyed
        self.note = note
        self.bad = bad


async def state(scheduler: Scheduler, handle: Handle[None]) -> str:
    record = await scheduler.get(handle.id)
    return str(record.ending if isinstance(record, HistoryRecord) else record.status)


async def settle(stage: Stage, clock: ManualClock) -> None:
    """Let the old attempt end, and the tasks that waited for it run."""
    stage.hook_may_end.set()
    await clock.advance(0)


@pytest.mark.parametrize("again", [1, 3])
async def test_a_dependent_that_ignores_failures_waits_for_the_old_attempt_of_a_cancelled_replacement(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, again: int
) -> None:
    stage = Stage()
    scheduler = await taskmill_scheduler(store=any_store, domains=[stage.domain])
    listener = scheduler.events(TaskUnblocked)
    async with scheduler.running():
        old = await stage.keyed.submit(1)
        after = await stage.note.options(depends_on=old, on_dependency_failure="ignore").submit("after")
        strict = await stage.note.options(depends_on=old).submit("strict")
        await manual_clock.advance(0)
        for version in range(again):
            replacement = await stage.keyed.submit(2 + version)
        await manual_clock.advance(0)
        await replacement.cancel()
        await manual_clock.advance(0)
        found = [await state(scheduler, handle) for handle in (replacement, after, strict)]
        graph = await scheduler.graph(after.id)
        await settle(stage, manual_clock)
        ending = await state(scheduler, after)
        unblocked = await anext(listener)
    assert found == ["cancelled", "blocked", "dependency_failed"]
    edges = {(edge.on_id, edge.open) for edge in graph.dependencies if edge.task_id == after.id}
    assert edges == {(replacement.id, False), (old.id, True)}
    assert stage.seen == ["keyed 1", "stopped 1", "after"]
    assert ending == "completed"
    assert isinstance(unblocked, TaskUnblocked)
    assert unblocked.task_id == after.id


async def test_it_waits_when_the_replacement_expires(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    stage = Stage()
    scheduler = await taskmill_scheduler(domains=[stage.domain])
    async with scheduler.running():
        await stage.keyed.submit(1)
        await manual_clock.advance(0)
        replacement = await stage.keyed.options(ttl=5).submit(2)
        after = await stage.note.options(depends_on=replacement, on_dependency_failure="ignore").submit("after")
        await manual_clock.advance(6)
        found = [await state(scheduler, replacement), await state(scheduler, after)]
        await settle(stage, manual_clock)
    assert found == ["expired", "blocked"]
    assert stage.seen == ["keyed 1", "stopped 1", "after"]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_contained_failure_of_the_next_in_line_is_no_failure_once_the_old_attempt_has_ended(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, cancelled: bool
) -> None:
    stage = Stage()
    scheduler = await taskmill_scheduler(store=any_store, domains=[stage.domain])
    async with scheduler.running():
        old = await stage.keyed.submit(1)
        bad = await stage.bad.submit()
        await manual_clock.advance(0)
        if cancelled:
            await old.cancel()
        replacement = await stage.keyed.options(depends_on=bad, on_dependency_failure="fail").submit(2)
        after = await stage.note.options(depends_on=replacement).submit("after")
        stage.go.set()
        await manual_clock.advance(0)
        found = [await state(scheduler, replacement), await state(scheduler, after)]
        await settle(stage, manual_clock)
        ending = await state(scheduler, after)
    assert found == ["dependency_failed", "blocked"]
    assert stage.seen == ["keyed 1", "stopped 1", "after"]
    assert ending == "completed"


async def test_a_later_dependent_of_an_attempt_that_is_being_replaced_fails(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    stage = Stage()
    scheduler = await taskmill_scheduler(domains=[stage.domain])
    async with scheduler.running():
        old = await stage.keyed.submit(1)
        await manual_clock.advance(0)
        replacement = await stage.keyed.submit(2)
        late = await stage.note.options(depends_on=old).submit("late")
        await replacement.cancel()
        await settle(stage, manual_clock)
        ending = await state(scheduler, late)
    assert ending == "dependency_failed"


async def test_all_ending_at_once_leaves_no_task_waiting(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    stage = Stage()
    scheduler = await taskmill_scheduler(domains=[stage.domain])
    async with scheduler.running():
        await stage.keyed.submit(1)
        await manual_clock.advance(0)
        replacement = await stage.keyed.submit(2)
        after = await stage.note.options(depends_on=replacement, on_dependency_failure="ignore").submit("after")
        stage.hook_may_end.set()
        await scheduler.cancel_where(type="d::keyed")
        await manual_clock.advance(0)
        ending = await state(scheduler, after)
    assert ending == "completed"
    # The hook of the first may have ended before the second was cancelled.
    second = [] if len(stage.seen) == 3 else ["keyed 2", "stopped 2"]
    assert stage.seen == ["keyed 1", "stopped 1", *second, "after"]
