"""A child that fails ends its family, unless the parent has ``fail_fast=False``."""

from __future__ import annotations

import asyncio

import pytest

from taskmill import Context, Domain, GiveUp, Retry, TaskFailed
from taskmill.events import TaskWaiting
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.records import ended


async def test_the_first_child_that_fails_ends_its_siblings_and_fails_the_parent(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    happened: list[str] = []

    @domain.task(retry=Retry.none())
    async def part(n: int) -> None:
        if n == 1:
            await started.wait()
            raise GiveUp("part one is broken")
        started.set()
        await asyncio.Event().wait()

    @part.on_cancel
    async def cleaned(n: int) -> None:
        happened.append(f"hook {n}")

    @domain.task
    async def whole(ctx: Context) -> None:
        await ctx.spawn_many(part.prepare(n) for n in range(4))

    @whole.finalize
    async def finish(ctx: Context) -> None:
        happened.append("finalize")

    started = asyncio.Event()
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=2)
    handle = await whole.submit()
    async with scheduler.running():
        with pytest.raises(TaskFailed, match=r"child \d+ \(d::part\) ended as failed: part one is broken"):
            await handle.result()
    assert happened == ["hook 0"]
    assert (await ended(scheduler, handle.id)).ending == "failed"
    endings = {child.payload["n"]: child.ending for child in await scheduler.history(parent=handle.id)}
    assert endings == {0: "cancelled", 1: "failed", 2: "cancelled", 3: "cancelled"}


async def test_a_parent_that_still_runs_is_stopped_when_a_child_fails(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d")
    happened: list[str] = []

    @domain.task(retry=Retry.none())
    async def part() -> None:
        raise ValueError("broken")

    @domain.task(retry=Retry.constant(5, 0))
    async def whole(ctx: Context) -> None:
        try:
            await ctx.spawn(part.prepare())
            await asyncio.Event().wait()
        finally:
            happened.append("stopped")

    @whole.on_cancel
    async def hook() -> None:
        happened.append("hook")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    handle = await whole.submit()
    await scheduler.run_until_idle()
    record = await ended(scheduler, handle.id)
    assert (record.ending, happened) == ("failed", ["stopped"])
    assert "ended as dead_letter: ValueError: broken" in str(record.error)


async def test_without_fail_fast_finalize_sees_the_failures(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task(retry=Retry.none())
    async def part(n: int) -> int:
        if n == 1:
            raise ValueError("broken")
        return n

    @domain.task(fail_fast=False)
    async def whole(ctx: Context) -> None:
        await ctx.spawn_many(part.prepare(n) for n in range(3))

    @whole.finalize
    async def finish(ctx: Context) -> list[object]:
        return [child.result if child.ending == "completed" else child.error for child in ctx.children]

    scheduler = await taskmill_scheduler(domains=[domain])
    tolerant = await whole.submit()
    strict = await whole.options(fail_fast=True).submit()
    await scheduler.run_until_idle()
    assert (await tolerant.wait()).result == [0, "ValueError: broken", 2]
    assert (await strict.wait()).ending == "failed"


async def test_a_parent_that_fails_takes_its_children_with_it(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d")
    happened: list[str] = []

    @domain.task
    async def part() -> None:
        started.set()
        await asyncio.Event().wait()

    @part.on_cancel
    async def cleaned() -> None:
        happened.append("hook")

    @domain.task(retry=Retry.none())
    async def whole(ctx: Context) -> None:
        await ctx.spawn(part.prepare())
        await started.wait()
        raise ValueError("no")

    started = asyncio.Event()
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    handle = await whole.submit()
    await scheduler.run_until_idle()
    assert (await ended(scheduler, handle.id)).ending == "dead_letter"
    (child,) = await scheduler.history(parent=handle.id)
    assert (child.ending, happened) == ("cancelled", ["hook"])
    newest_first = [record.id for record in await scheduler.history()]
    assert newest_first == [handle.id, child.id] or child.ended_at == (await ended(scheduler, handle.id)).ended_at


async def test_a_parent_whose_child_fails_makes_room_for_the_run_that_was_added(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    ran: list[int] = []
    go = asyncio.Event()

    @domain.task(retry=Retry.none())
    async def part(n: int) -> None:
        await go.wait()
        if n == 1:
            raise GiveUp("broken")

    @domain.task(key="k", on_duplicate="requeue")
    async def whole(ctx: Context, n: int) -> None:
        ran.append(n)
        await ctx.spawn(part.prepare(n))

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    waiting = scheduler.events(TaskWaiting)
    async with scheduler.running():
        first = await whole.submit(1)
        await anext(waiting)
        again = await whole.submit(2)
        assert again.kind == "requeued"
        go.set()
        assert (await again.wait()).ending == "completed"
        assert (await first.wait()).ending == "failed"
    assert ran == [1, 2]
