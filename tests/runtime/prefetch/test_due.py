"""A delayed task that comes due holds prefetched tasks back only if it may start before them."""

from __future__ import annotations

import asyncio

import pytest

from taskmill import Aging, Domain, Priority
from taskmill.dispatch.due import DueTasks
from taskmill.model.turn import DueFront, Turn, TurnResult
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory

MANY = 40
LAST = 9
"""The task in which the delayed task comes due; the tasks behind it are prefetched."""


async def started_while_no_turn_commits(
    taskmill_scheduler: SchedulerFactory,
    manual_clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    priority: Priority,
    aging: Aging | None = None,
) -> list[int]:
    """Let a delayed task come due, and return which prefetched tasks begin before a turn has released it."""
    domain = Domain("d")
    started: list[int] = []
    go_on, may_commit = asyncio.Event(), asyncio.Event()
    may_commit.set()

    @domain.task
    async def step(n: int) -> None:
        started.append(n)
        if n == LAST:
            await go_on.wait()

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1, aging=aging)
    commit = scheduler._store.turn

    async def late(turn: Turn) -> TurnResult:
        await may_commit.wait()
        return await commit(turn)

    monkeypatch.setattr(scheduler._store, "turn", late)
    await scheduler.submit_many([step.prepare(n) for n in range(MANY)])
    await step.options(run_after=0.001, priority=priority).submit(100)
    async with scheduler.running():
        while LAST not in started:
            await asyncio.sleep(0)
        await manual_clock.advance(0)
        assert scheduler._loop is not None
        assert scheduler._loop._waiting.prefetch.tasks
        may_commit.clear()
        await manual_clock.advance(0.001)
        go_on.set()
        for _ in range(20):
            await asyncio.sleep(0)
        found = started[LAST + 1 :]
        may_commit.set()
        while await scheduler.count():
            await asyncio.sleep(0)
    assert sorted(started) == [*range(MANY), 100]
    return found


@pytest.mark.parametrize("priority", [Priority.NORMAL, Priority.LOW])
async def test_prefetched_tasks_begin_although_a_task_is_due_that_starts_after_them(
    taskmill_scheduler: SchedulerFactory,
    manual_clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    priority: Priority,
) -> None:
    found = await started_while_no_turn_commits(taskmill_scheduler, manual_clock, monkeypatch, priority)
    assert found[:3] == [10, 11, 12]


async def test_no_prefetched_task_begins_while_a_more_urgent_one_is_due(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not await started_while_no_turn_commits(taskmill_scheduler, manual_clock, monkeypatch, Priority.HIGH)


async def test_no_prefetched_task_begins_while_a_task_is_due_that_may_have_aged(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await started_while_no_turn_commits(taskmill_scheduler, manual_clock, monkeypatch, Priority.NORMAL, Aging())
    assert not found


async def test_a_turn_that_releases_a_more_urgent_task_starts_no_other(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = Domain("d")
    started: list[int] = []
    ends, may_commit = [asyncio.Event() for _ in range(5)], asyncio.Event()

    @domain.task
    async def step(n: int) -> None:
        started.append(n)
        await ends[n].wait()

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=2)
    commit = scheduler._store.turn

    async def late(turn: Turn) -> TurnResult:
        await may_commit.wait()
        return await commit(turn)

    monkeypatch.setattr(scheduler._store, "turn", late)
    await scheduler.submit_many([step.prepare(n) for n in range(4)])
    await step.options(run_after=2, priority=Priority.HIGH).submit(4)
    async with scheduler.running():
        may_commit.set()
        # Tasks that take so long are not prefetched.
        await manual_clock.advance(1)
        may_commit.clear()
        ends[0].set()
        await manual_clock.advance(1)
        # While the turn that ends the first task is under way, the second ends and the delayed one is due.
        ends[1].set()
        await manual_clock.advance(0)
        may_commit.set()
        await manual_clock.advance(0)
        for end in ends:
            end.set()
    assert started[:4] == [0, 1, 2, 4]


@pytest.mark.one_engine("it opens no store")
def test_a_task_overtakes_only_when_it_is_due_and_more_urgent() -> None:
    due = DueTasks()
    assert not due.overtakes(128, 1000, ages=False)
    due.note(1000, 128)
    assert not due.overtakes(128, 1000, ages=False)
    assert due.overtakes(128, 1000, ages=True)
    due.note(2000, 64)
    # Which of the two is due at that time is not remembered.
    assert due.overtakes(128, 1000, ages=False)
    assert not due.overtakes(128, 999, ages=False)


@pytest.mark.one_engine("it opens no store")
def test_a_delayed_task_of_unknown_urgency_overtakes_all_others() -> None:
    due = DueTasks()
    due.note(1000)
    assert due.overtakes(0, 1000, ages=False)


@pytest.mark.one_engine("it opens no store")
def test_delayed_tasks_that_were_not_read_may_be_more_urgent() -> None:
    due = DueTasks()
    due.read(DueFront(1000, 128, 1500))
    assert not due.overtakes(128, 1499, ages=False)
    assert due.overtakes(128, 1500, ages=False)
    due.read(DueFront())
    assert (due.next_at, due.is_past(5000)) == (None, False)
