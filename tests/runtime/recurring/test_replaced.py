"""Duplicates and replacements of a series: still one occurrence at a time."""

from __future__ import annotations

import asyncio

import pytest

from taskmill import Domain, InvalidState
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


async def test_a_duplicate_that_is_skipped_keeps_the_series(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[tuple[int, float]] = []

    @domain.task(key="k")
    async def tick(version: int) -> None:
        starts.append((version, manual_clock.monotonic()))

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=10).submit(1)
    async with scheduler.running():
        await manual_clock.advance(5)
        again = await tick.options(every=3).submit(2)
        assert again.kind == "duplicate"
        await manual_clock.advance(20)
    assert starts == [(1, 0), (1, 10), (1, 20)]


@pytest.mark.parametrize("at_work", [False, True])
async def test_superseding_with_every_replaces_the_series(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, at_work: bool
) -> None:
    domain = Domain("d")
    starts: list[tuple[int, float]] = []

    @domain.task(key="k", on_duplicate="supersede")
    async def tick(version: int) -> None:
        starts.append((version, manual_clock.monotonic()))
        if version == 1 and at_work:
            await asyncio.Event().wait()

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    old = await tick.options(every=10).submit(1)
    async with scheduler.running():
        await manual_clock.advance(5)
        new = await tick.options(every=4, max_runs=2).submit(2)
        assert new.kind == "superseded"
        await manual_clock.advance(30)
        with pytest.raises(InvalidState):
            await scheduler.pause_recurring(old.id)
    assert starts == [(1, 0), (2, 5), (2, 9)]
    assert await scheduler.tasks() == []


@pytest.mark.parametrize("at_work", [False, True])
async def test_superseding_without_every_replaces_one_occurrence(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, at_work: bool
) -> None:
    domain = Domain("d")
    starts: list[tuple[int, float]] = []

    @domain.task(key="k", on_duplicate="supersede")
    async def tick(version: int) -> None:
        starts.append((version, manual_clock.monotonic()))
        if len(starts) == 1 and at_work:
            await asyncio.Event().wait()

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=10, max_runs=3).submit(1)
    async with scheduler.running():
        await manual_clock.advance(5)
        new = await tick.submit(2)
        await manual_clock.advance(0)
        assert starts == [(1, 0), (2, 5)]
        assert len((await scheduler.snapshot()).schedules) == 1
        await scheduler.pause_recurring(new.id)
        await scheduler.resume_recurring(new.id)
        await manual_clock.advance(100)
    # The occurrence due at 10 is replaced while it waits, the one due at 0 while it runs.
    assert starts == [(1, 0), (2, 5), *([(1, 10), (1, 20)] if at_work else [(1, 20)])]


async def test_pausing_and_resuming_a_replacement_does_not_open_its_gate(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    may_abort = asyncio.Event()

    @domain.task(key="k", on_duplicate="supersede")
    async def tick(version: int) -> None:
        happened.append(f"start {version}")
        if version == 1:
            await asyncio.Event().wait()

    @tick.on_cancel
    async def abort(version: int) -> None:
        await may_abort.wait()
        happened.append(f"abort {version}")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=100).submit(1)
    async with scheduler.running():
        await manual_clock.advance(1)
        new = await tick.options(every=100).submit(2)
        await manual_clock.advance(0)
        await scheduler.pause_recurring(new.id)
        await scheduler.resume_recurring(new.id)
        await manual_clock.advance(1)
        assert happened == ["start 1"]
        may_abort.set()
        await manual_clock.advance(1)
    assert happened == ["start 1", "abort 1", "start 2"]


async def test_the_next_occurrence_waits_until_the_last_has_really_stopped(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    may_abort = asyncio.Event()

    @domain.task(key="k", on_duplicate="supersede")
    async def tick(version: int) -> None:
        happened.append(f"start {version}")
        if len(happened) == 1:
            await asyncio.Event().wait()

    @tick.on_cancel
    async def abort(version: int) -> None:
        await may_abort.wait()
        happened.append(f"abort {version}")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=10).submit(1)
    async with scheduler.running():
        await manual_clock.advance(1)
        replacement = await tick.submit(2)
        await manual_clock.advance(1)
        await replacement.cancel()
        await manual_clock.advance(20)
        assert happened == ["start 1"]
        may_abort.set()
        await manual_clock.advance(10)
    assert happened == ["start 1", "abort 1", "start 1"]


async def test_the_next_occurrence_waits_for_a_stopping_task_with_its_key(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    started, may_end = asyncio.Event(), asyncio.Event()

    @domain.task(key="k", on_duplicate="supersede")
    async def work(n: int) -> None:
        happened.append(f"start {n}")
        if n == 1:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                await may_end.wait()
                happened.append("end 1")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        await work.submit(1)
        await started.wait()
        first = await work.options(every=10).submit(2)
        await first.cancel()
        await manual_clock.advance(25)
        assert happened == ["start 1"]
        may_end.set()
        await manual_clock.advance(10)
    assert happened[:3] == ["start 1", "end 1", "start 2"]
