"""A claim that is committed after the deadline of its task starts nothing: the task has expired for everyone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from taskmill import Context, Domain, HistoryRecord, Retry, Scheduler, TtlFrom
from taskmill.events import TaskDispatched, TaskExpired
from taskmill.model.turn import Turn, TurnResult
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory

SECOND = timedelta(seconds=1)


async def nothing() -> None: ...


def slow_commits(
    scheduler: Scheduler,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    *,
    by: timedelta,
    attempt: int = 1,
    meanwhile: Callable[[], Awaitable[None]] = nothing,
) -> None:
    """Let ``by`` pass, and something happen, while a turn commits the claims of attempts with this number."""
    commit = scheduler._store.turn

    async def slow(turn: Turn) -> TurnResult:
        result = await commit(turn)
        if any(task.attempt == attempt for task in result.claimed):
            clock._move_to(clock._elapsed + by)
            await meanwhile()
        return result

    monkeypatch.setattr(scheduler._store, "turn", slow)


async def test_a_task_whose_deadline_passes_while_it_is_claimed_expires_and_does_not_start(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = Domain("d")
    started: list[int] = []

    @domain.task(key=True)
    async def work(n: int) -> None:
        started.append(n)

    scheduler = await taskmill_scheduler(domains=[domain])
    events = scheduler.events(TaskDispatched, TaskExpired)
    late = await work.options(ttl=1).submit(1)
    in_time = await work.options(ttl=2).submit(2)
    endless = await work.submit(3)
    slow_commits(scheduler, manual_clock, monkeypatch, by=SECOND)
    await scheduler.run_until_idle()
    assert sorted(started) == [2, 3]
    record = await late.record()
    assert isinstance(record, HistoryRecord)
    assert (record.ending, record.attempt, record.started_at, record.retries) == ("expired", 0, None, 0)
    assert (await in_time.record()).state == (await endless.record()).state == "completed"
    assert (await work.options(ttl=1).submit(1)).kind == "inserted", "its key is free"
    await events.aclose()
    told = [(type(event).__name__, event.task_id) async for event in events]
    assert sorted(told) == sorted(
        [("TaskDispatched", in_time.id), ("TaskDispatched", endless.id), ("TaskExpired", late.id)]
    )
    assert not (await scheduler.snapshot()).running


async def test_a_retry_whose_deadline_passes_while_it_is_claimed_expires(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = Domain("d")
    attempts: list[int] = []

    @domain.task(ttl=5, ttl_from=TtlFrom.FIRST_ATTEMPT, retry=Retry.constant(5, delay=3))
    async def work(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        raise ValueError("again")

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await work.submit()
    slow_commits(scheduler, manual_clock, monkeypatch, by=2 * SECOND, attempt=2)
    async with scheduler.running():
        await manual_clock.advance(3)
        record = await handle.record()
    assert attempts == [1]
    assert isinstance(record, HistoryRecord)
    assert (record.ending, record.attempt, record.retries) == ("expired", 1, 1)
    assert record.started_at is not None


async def test_a_deadline_that_counts_from_the_first_attempt_does_not_prevent_it(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = Domain("d")
    started: list[int] = []

    @domain.task(ttl=1, ttl_from=TtlFrom.FIRST_ATTEMPT)
    async def work(n: int) -> None:
        started.append(n)

    scheduler = await taskmill_scheduler(domains=[domain])
    await work.submit(1)
    slow_commits(scheduler, manual_clock, monkeypatch, by=2 * SECOND)
    await scheduler.run_until_idle()
    assert started == [1]


async def test_a_finalize_starts_after_the_deadline_of_its_task(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = Domain("d")
    finalized: list[int] = []

    @domain.task
    async def child() -> None: ...

    @domain.task(ttl=1)
    async def parent(ctx: Context) -> None:
        await ctx.spawn(child.options(ttl=60).prepare())

    @parent.finalize
    async def finalize(ctx: Context) -> None:
        finalized.append(ctx.attempt)

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await parent.submit()
    slow_commits(scheduler, manual_clock, monkeypatch, by=2 * SECOND, attempt=2)
    await scheduler.run_until_idle()
    assert finalized
    assert (await handle.record()).state == "completed"


async def test_a_retry_that_is_cancelled_during_a_late_claim_runs_its_hook(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = Domain("d")
    calls: list[str] = []

    @domain.task(ttl=5, retry=Retry.constant(5, delay=3))
    async def work() -> None:
        calls.append("attempt")
        raise ValueError("again")

    @work.on_cancel
    async def clean_up() -> None:
        calls.append("hook")

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await work.submit()

    async def cancelled() -> None:
        assert await handle.cancel()

    slow_commits(scheduler, manual_clock, monkeypatch, by=2 * SECOND, attempt=2, meanwhile=cancelled)
    async with scheduler.running():
        await manual_clock.advance(3)
        record = await handle.record()
    assert calls == ["attempt", "hook"]
    assert record.state == "cancelled"


async def test_a_task_that_was_claimed_too_late_expires_also_if_the_scheduler_stops(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    domain = Domain("d")
    started: list[int] = []

    @domain.task(ttl=1)
    async def work(n: int) -> None:
        started.append(n)

    scheduler = await taskmill_scheduler(store=tmp_path / "tasks.db", domains=[domain])
    handle = await work.submit(1)

    async def stops() -> None:
        asyncio.get_running_loop().create_task(scheduler.stop())
        await asyncio.sleep(0)

    slow_commits(scheduler, manual_clock, monkeypatch, by=2 * SECOND, meanwhile=stops)
    await scheduler.run()
    monkeypatch.undo()
    assert (await handle.record()).state == "expired"
    await scheduler.run_until_idle()
    record = await handle.record()
    assert isinstance(record, HistoryRecord)
    assert (record.attempt, record.started_at, record.errors, started) == (0, None, (), [])
