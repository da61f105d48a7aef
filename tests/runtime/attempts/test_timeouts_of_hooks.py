"""The timeout of a task also applies to ``finalize`` and hooks, on an idle scheduler too."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from taskmill import Context, Domain, Retry, Scheduler


@pytest.mark.parametrize("wants_context", [True, False])
async def test_a_finalize_that_exceeds_its_timeout_is_noticed_at_once(wants_context: bool) -> None:
    domain = Domain("d", retry=Retry.none())
    begun: list[float] = []

    @domain.task(timeout=0.5)
    async def parent(ctx: Context) -> None:
        await ctx.spawn(child.prepare())

    @domain.task
    async def child() -> None:
        return

    async def with_context(ctx: Context) -> None:
        begun.append(time.monotonic())
        await asyncio.Event().wait()

    async def without_context() -> None:
        begun.append(time.monotonic())
        await asyncio.Event().wait()

    parent.finalize(with_context if wants_context else without_context)
    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        handle = await parent.submit()
        record = await handle.wait(timeout=10)
        took = time.monotonic() - begun[0]
    assert (record.ending, record.error) == ("dead_letter", "TimeoutError: exceeded its timeout of 0.5 s")
    assert 0.45 < took < 1.0


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_hook_that_exceeds_the_timeout_of_its_task_is_not_waited_for(is_async: bool) -> None:
    domain = Domain("d")
    started = asyncio.Event()
    begun: list[float] = []
    may_end = threading.Event()

    @domain.task(timeout=0.5)
    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    async def on_loop() -> None:
        begun.append(time.monotonic())
        await asyncio.Event().wait()

    def in_thread() -> None:
        begun.append(time.monotonic())
        may_end.wait(30)

    work.on_cancel(on_loop if is_async else in_thread)
    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        handle = await work.submit()
        await started.wait()
        await handle.cancel()
        record = await handle.wait(timeout=10)
        took = time.monotonic() - begun[0]
        may_end.set()
    assert (record.ending, record.error) == ("cancelled", "on_cancel did not end within 0.5 s")
    assert 0.45 < took < 1.0
