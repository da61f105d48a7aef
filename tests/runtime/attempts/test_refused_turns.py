"""Turns that the store refuses, and verdicts that are ignored: no task starts out of order or is charged twice."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from taskmill import Context, Domain, Group, Scheduler, StoreError
from taskmill.events import Event, TaskCompleted
from taskmill.model.turn import Turn, TurnResult
from taskmill.testing import ManualClock
from tests.raw_rows import raw, refusing
from tests.runtime.records import ended

GROUPS = {"a": Group(weight=2), "b": Group(weight=2)}


async def test_after_a_refused_turn_the_most_urgent_still_starts_first(
    manual_clock: ManualClock, tmp_path: Path
) -> None:
    domain, file = Domain("d"), tmp_path / "tasks.db"
    order: list[int] = []

    @domain.task
    async def work(ctx: Context) -> None:
        order.append(ctx.task.priority)
        await manual_clock.sleep(1)

    async with (
        Scheduler(file, domains=[domain], max_concurrency=1, clock=manual_clock) as scheduler,
        scheduler.running(),
    ):
        await scheduler.submit(work.options(priority=9).prepare())
        await manual_clock.advance(0.5)
        for priority in (3, 1, 2):
            await scheduler.submit(work.options(priority=priority).prepare())
        with refusing(file, "INSERT", "taskmill_history"):
            await manual_clock.advance(1)
        await manual_clock.advance(15)
    assert order == [9, 1, 2, 3]


async def test_a_turn_that_the_store_refuses_charges_its_groups_once(manual_clock: ManualClock, tmp_path: Path) -> None:
    domain, file = Domain("d"), tmp_path / "tasks.db"
    order: list[str] = []

    @domain.task
    async def work(ctx: Context) -> None:
        order.append(ctx.task.group)
        await manual_clock.sleep(1)

    async with Scheduler(file, domains=[domain], max_concurrency=1, groups=GROUPS, clock=manual_clock) as scheduler:
        events = scheduler.events(TaskCompleted)
        async with scheduler.running():
            await scheduler.submit(work.options(group="a").prepare())
            await manual_clock.advance(0.5)
            for group in "bababab":
                await scheduler.submit(work.options(group=group).prepare())
            with refusing(file, "INSERT", "taskmill_history"):
                await manual_clock.advance(5)
            await manual_clock.advance(15)
        told: list[Event] = [await anext(events) for _ in range(8)]
    assert "".join(order) == "abababab"
    assert {getattr(event, "duration", None) for event in told} == {timedelta(seconds=1)}


async def test_a_verdict_that_a_stop_request_defeats_charges_its_group_once(
    manual_clock: ManualClock, tmp_path: Path
) -> None:
    domain, file = Domain("d"), tmp_path / "tasks.db"
    order: list[str] = []

    @domain.task
    async def work(ctx: Context, defeated: bool = False) -> None:
        order.append(ctx.task.group)
        await manual_clock.sleep(1)
        if defeated:
            # Another process cancels the task at the moment when the handler ends: its verdict is ignored.
            with raw(file) as connection:
                connection.execute("UPDATE taskmill_task SET stop = 'cancel' WHERE id = ?", (ctx.task.id,))

    @work.on_cancel
    async def undo(ctx: Context, defeated: bool = False) -> None:
        await manual_clock.sleep(5)

    async with Scheduler(file, domains=[domain], max_concurrency=1, groups=GROUPS, clock=manual_clock) as scheduler:
        first = await scheduler.submit(work.options(group="a").prepare(True))
        async with scheduler.running():
            await manual_clock.advance(0.5)
            for group in "ab" * 4:
                await scheduler.submit(work.options(group=group).prepare())
            await manual_clock.advance(20)
        record = await ended(scheduler, first.id)
    assert (record.ending, record.duration) == ("cancelled", timedelta(seconds=1))
    assert "".join(order) == "ababababa"


async def _time_out(scheduler: Scheduler, clock: ManualClock, file: Path, verb: str, table: str) -> float:
    """Run until idle for at most 5 s while the store refuses a statement; return how long that took."""
    with refusing(file, verb, table):
        since = clock.monotonic()
        running = asyncio.create_task(scheduler.run_until_idle(timeout=5))
        for _ in range(30):
            await clock.advance(1)
            if running.done():
                break
        took = clock.monotonic() - since
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(running, 10)
    return took


async def test_waiting_until_idle_ends_in_time_though_the_store_refuses_every_turn(
    manual_clock: ManualClock, tmp_path: Path
) -> None:
    domain, file = Domain("d"), tmp_path / "tasks.db"
    runs: list[int] = []

    @domain.task
    async def work() -> None:
        runs.append(1)

    async with Scheduler(file, domains=[domain], shutdown_grace=1, clock=manual_clock) as scheduler:
        await work.submit()
        nothing_starts = await _time_out(scheduler, manual_clock, file, "UPDATE", "taskmill_task")
        begun = list(runs)
        nothing_ends = await _time_out(scheduler, manual_clock, file, "INSERT", "taskmill_history")
        await scheduler.run_until_idle()
    assert begun == []
    assert 5 <= nothing_starts <= 15
    assert 5 <= nothing_ends <= 15


async def test_waiting_until_idle_ends_in_time_though_the_store_never_says_what_waits(
    manual_clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def turn(turn: Turn) -> TurnResult:
        raise StoreError("it is away")

    async with Scheduler(tmp_path / "tasks.db", clock=manual_clock) as scheduler:
        monkeypatch.setattr(scheduler._store, "turn", turn)
        running = asyncio.create_task(scheduler.run_until_idle(timeout=5))
        await manual_clock.advance(10)
        await asyncio.wait([running], timeout=5)
        ended = running.done()
        running.cancel()
        with pytest.raises(TimeoutError):
            await running
    assert ended
