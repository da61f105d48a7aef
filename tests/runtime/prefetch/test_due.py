"""A delayed task that comes due holds prefetched tasks back only if it may start before them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from taskmill import Aging, Context, Domain, Priority, RetryLater, ThrottlePolicy
from taskmill.dispatch.backpressure import Backpressure
from taskmill.dispatch.due import MOST, DueTasks
from taskmill.dispatch.front import Front
from taskmill.dispatch.limits import Load
from taskmill.dispatch.picker import Picker
from taskmill.model.controls import Controls, Pause, Scope, ScopeKind
from taskmill.model.task import DueTask, Lane, Place
from taskmill.model.turn import DueFront, Turn, TurnResult
from taskmill.policy.rules import Rules
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

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
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


RETRIED_AFTER = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("group", "aging", "is_awaited", "begins"),
    [
        pytest.param("other", None, False, True, id="in another group"),
        pytest.param("", None, False, False, id="first in its group"),
        pytest.param("other", Aging(grace=1, interval=1), False, False, id="aged"),
        pytest.param("other", Aging(grace=3600, interval=1), False, True, id="not aged"),
        pytest.param("other", None, True, False, id="perhaps made more urgent"),
    ],
)
async def test_a_retry_holds_prefetched_tasks_back_only_if_it_may_start_before_them(
    taskmill_scheduler: SchedulerFactory,
    manual_clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    group: str,
    aging: Aging | None,
    is_awaited: bool,
    begins: bool,
) -> None:
    domain = Domain("d")
    started: list[int] = []
    go_on, may_commit = asyncio.Event(), asyncio.Event()
    may_commit.set()

    @domain.task
    async def step(n: int) -> None:
        started.append(n)
        if n == LAST:
            await go_on.wait()

    @domain.task
    async def flaky(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise RetryLater("again", after=RETRIED_AFTER + timedelta(milliseconds=1))
        started.append(100)

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1, aging=aging)
    commit = scheduler._store.turn

    async def late(turn: Turn) -> TurnResult:
        await may_commit.wait()
        return await commit(turn)

    monkeypatch.setattr(scheduler._store, "turn", late)
    retried = await flaky.options(group=group).submit()
    if is_awaited:
        await step.options(depends_on=[retried]).submit(MANY)
    async with scheduler.running():
        await manual_clock.advance(RETRIED_AFTER)
        await scheduler.submit_many([step.prepare(n) for n in range(MANY)])
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
    assert found[:3] == ([10, 11, 12] if begins else [])


@pytest.mark.parametrize("is_retry", [False, True], ids=["delayed", "retried"])
async def test_the_turn_that_releases_a_delayed_task_starts_it(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch, is_retry: bool
) -> None:
    domain = Domain("d")
    turns: list[tuple[bool, list[int]]] = []

    @domain.task
    async def work(ctx: Context) -> None:
        if is_retry and ctx.attempt == 1:
            raise RetryLater("again", after=1)

    scheduler = await taskmill_scheduler(domains=[domain])
    commit = scheduler._store.turn

    async def noted(turn: Turn) -> TurnResult:
        result = await commit(turn)
        turns.append((turn.upkeep.promote, [task.id for task in result.claimed]))
        return result

    monkeypatch.setattr(scheduler._store, "turn", noted)
    async with scheduler.running():
        handle = await work.options(run_after=0 if is_retry else 1).submit()
        await manual_clock.advance(2)
        await handle.result()
    assert [claimed for promotes, claimed in turns if promotes] == [[handle.id]]


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
def test_a_delayed_task_is_known_until_it_is_taken() -> None:
    due = due_tasks(2000, 1000)
    assert (due.next_at, due.is_past(999), due.is_past(1000)) == (1000, False, True)
    assert taken(due, 1999) == [1000]
    assert (due.next_at, due.are_known(5000)) == (2000, True)
    due.forget([2000])
    assert taken(due, 2000) == []
    assert (due.next_at, due.is_past(5000)) == (None, False)


@pytest.mark.one_engine("it opens no store")
def test_tasks_that_were_not_read_are_not_known() -> None:
    due = due_tasks()
    due.read(DueFront([delayed(1000)], 1500))
    assert (due.next_at, due.are_known(1499), due.are_known(1500)) == (1000, True, False)
    due.note(delayed(2000))
    assert taken(due, 1499) == [1000]
    # The task that was noted is among those that are read when their time comes.
    assert (due.next_at, taken(due, 2000)) == (1500, [])


@pytest.mark.one_engine("it opens no store")
def test_of_many_delayed_tasks_the_next_ones_are_kept() -> None:
    due = due_tasks(*range(2 * MOST, 0, -1))
    assert due.next_at == 1
    known = taken(due, 2 * MOST)
    assert known == list(range(1, len(known) + 1))
    assert MOST // 2 <= len(known) <= MOST
    assert (due.next_at, due.are_known(len(known)), due.are_known(2 * MOST)) == (len(known) + 1, True, False)


@pytest.mark.one_engine("it opens no store")
def test_what_the_store_has_read_is_newer_than_what_a_turn_returns_to_the_queue() -> None:
    due = due_tasks()
    due.read(DueFront([delayed(1000, urgency=64)]))
    due.note(delayed(1000))
    assert [task.effective for task in due.take(1000)] == [64]
    due.read(DueFront([delayed(2000, id=1, urgency=64)]))
    due.note(delayed(3000, id=1))
    assert taken(due, 2000) == []
    assert taken(due, 3000) == [1]


@pytest.mark.one_engine("it opens no store")
def test_places_are_uncertain_while_ended_pauses_owe_time() -> None:
    due = due_tasks(1000)
    assert due.are_known(1000)
    pause = Scope(ScopeKind.GROUP, "g"), Pause(since=1, until=500)
    rules = due._picker.rules
    due._picker.rule(Rules(rules.declared, Controls(ended_pauses=[pause])), (), 500)
    assert not due.are_known(1000)


def due_tasks(*at: int) -> DueTasks:
    load = Load()
    due = DueTasks(Picker(Front(), load, lambda _: True, Backpressure(load, ThrottlePolicy())))
    for each in at:
        due.note(delayed(each))
    return due


def delayed(at: int, id: int = 0, urgency: int = 128) -> DueTask:
    """Return a delayed task; its id is the time at which it is due, if none is given."""
    return DueTask(at, Lane("", urgency, "d::step"), Place(at, id or at, id or at))


def taken(due: DueTasks, now: int) -> list[int]:
    """Take the tasks that are due, and return their ids."""
    return sorted(task.id for task in due.take(now))
