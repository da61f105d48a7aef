"""A stopping task has given up its key: the next holder waits for it, and its clean-up is not cut short."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from taskmill import AlreadyRunning, Domain, Retry
from taskmill.core.clock import SystemClock
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.records import active, ended


async def test_a_new_task_of_a_key_waits_for_a_cancelled_one_that_has_not_ended(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    started, may_end = asyncio.Event(), asyncio.Event()

    @domain.task(key="k")
    async def work(n: int) -> None:
        happened.append(f"start {n}")
        started.set()
        if n == 1:
            try:
                await asyncio.Event().wait()
            finally:
                await may_end.wait()
                happened.append("end 1")

    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        first = await work.submit(1)
        await started.wait()
        await first.cancel()
        second = await work.submit(2)
        assert second.kind == "inserted"
        await manual_clock.advance(1)
        assert happened == ["start 1"]
        may_end.set()
        await second.wait()
    assert happened == ["start 1", "end 1", "start 2"]
    assert (await ended(scheduler, first.id)).ending == "cancelled"


async def test_a_revived_dead_letter_waits_for_a_stopping_task_with_its_key(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    started, may_end = asyncio.Event(), asyncio.Event()

    @domain.task(key="k", retry=Retry.none())
    async def work(n: int) -> None:
        if n == 1 and not happened:
            raise ValueError("dead")
        happened.append(f"start {n}")
        try:
            if n == 2:
                started.set()
                await asyncio.Event().wait()
        finally:
            if n == 2:
                await may_end.wait()
            happened.append(f"end {n}")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        dead = await work.submit(1)
        await dead.wait()
        running = await work.submit(2)
        await started.wait()
        await running.cancel()
        await scheduler.retry_dead(dead.id)
        await manual_clock.advance(1)
        assert (await active(scheduler, dead.id)).status == "blocked"
        may_end.set()
        assert (await dead.wait()).ending == "completed"
    assert happened == ["start 2", "end 2", "start 1", "end 1"]


async def test_a_second_request_to_stop_does_not_cut_a_clean_up_short(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    cleaning, may_end = asyncio.Event(), asyncio.Event()

    @domain.task(timeout=1, retry=Retry.none())
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await may_end.wait()
            happened.append("cleaned")

    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        handle = await work.submit()
        await manual_clock.advance(1)
        await cleaning.wait()
        await handle.cancel()
        await manual_clock.advance(0)
        may_end.set()
        assert (await handle.wait()).ending == "cancelled"
    assert happened == ["cleaned"]


@pytest.mark.one_engine("a file has one dispatcher; for nodes that linger see tests/postgres/test_lingering.py")
async def test_a_hook_that_outlives_shutdown_keeps_the_right_to_dispatch(
    taskmill_scheduler: SchedulerFactory, tmp_path: Path
) -> None:
    domain = Domain("d")
    started, may_end = asyncio.Event(), threading.Event()
    hook_started = asyncio.Event()
    loop = asyncio.get_running_loop()

    @domain.task(key="k", on_duplicate="supersede")
    async def work(n: int) -> None:
        started.set()
        await asyncio.Event().wait()

    @work.on_cancel
    def hook(n: int) -> None:
        loop.call_soon_threadsafe(hook_started.set)
        may_end.wait(20)

    file = str(tmp_path / "tasks.db")
    first = await taskmill_scheduler(store=file, domains=[domain], clock=SystemClock())
    async with first.running():
        await work.submit(1)
        await started.wait()
        await work.submit(2)
        await hook_started.wait()
        await first.stop(grace=0)
    second = await taskmill_scheduler(store=file, domains=[], clock=SystemClock())
    with pytest.raises(AlreadyRunning):
        await second.run_until_idle()
    may_end.set()
    while True:
        try:
            await second.run_until_idle()
        except AlreadyRunning:
            await asyncio.sleep(0.01)
        else:
            break
