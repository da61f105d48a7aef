"""A parent waits for its children without a slot: its result, its progress, and their records."""

from __future__ import annotations

import asyncio

import pytest

from taskmill import Context, Domain, Retention
from taskmill.events import TaskWaiting
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.records import active


async def test_a_parent_waits_for_its_children_without_a_slot_and_then_finalizes(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d")
    happened: list[str] = []

    @domain.task
    async def part(n: int) -> int:
        happened.append(f"part {n}")
        return n * 10

    @domain.task
    async def whole(ctx: Context, parts: int) -> str:
        await ctx.save(upload="u1")
        handles = await ctx.spawn_many(part.prepare(n) for n in range(parts))
        happened.append(f"spawned {[handle.kind for handle in handles]}")
        return "handler"

    @whole.finalize
    async def finish(ctx: Context, parts: int) -> dict[str, object]:
        happened.append("finalize")
        assert ctx.task.status == "running"
        return {"saved": dict(ctx.saved), "parts": [child.result for child in ctx.children], "n": parts}

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=1)
    listener = scheduler.events(TaskWaiting)
    handle = await whole.submit(3)
    await scheduler.run_until_idle()
    assert happened == ["spawned ['inserted', 'inserted', 'inserted']", "part 0", "part 1", "part 2", "finalize"]
    assert (await handle.wait()).result == {"saved": {"upload": "u1"}, "parts": [0, 10, 20], "n": 3}
    event = await anext(listener)
    assert isinstance(event, TaskWaiting)
    assert (event.task_id, event.children) == (handle.id, 3)
    assert [child.parent_id for child in await scheduler.history(parent=handle.id)] == [handle.id] * 3


async def test_without_finalize_the_parent_completes_with_what_its_handler_returned(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    go = asyncio.Event()

    @domain.task
    async def part() -> None:
        await go.wait()

    @domain.task
    async def whole(ctx: Context) -> str:
        await ctx.spawn(part.prepare())
        return "done"

    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        handle = await whole.submit()
        await manual_clock.advance(0)
        assert (await active(scheduler, handle.id)).status == "waiting"
        go.set()
        assert (await handle.wait()).result == "done"


async def test_children_that_end_before_the_handler_returns_are_finalized_all_the_same(
    taskmill_scheduler: SchedulerFactory,
) -> None:
    domain = Domain("d")

    @domain.task
    async def part() -> int:
        return 1

    @domain.task
    async def whole(ctx: Context) -> None:
        child = await ctx.spawn(part.prepare())
        await child.wait()

    @whole.finalize
    async def finish(ctx: Context) -> int:
        return len(ctx.children)

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await whole.submit()
    await scheduler.run_until_idle()
    assert (await handle.wait()).result == 1


async def test_the_progress_of_a_parent_is_that_of_its_children(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    go = [asyncio.Event() for _ in range(4)]

    @domain.task
    async def part(ctx: Context, n: int) -> None:
        if n == 3:
            ctx.progress(0.5)
        await go[n].wait()

    @domain.task
    async def whole(ctx: Context) -> None:
        ctx.progress(0.1, "splitting")
        await ctx.spawn_many(part.prepare(n) for n in range(4))

    async def fraction() -> float | None:
        await manual_clock.advance(1)
        progress = (await active(scheduler, handle.id)).progress
        return progress.fraction if progress else None

    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        handle = await whole.submit()
        assert await fraction() == pytest.approx(0.125)
        go[0].set()
        assert await fraction() == pytest.approx(0.375)
        go[1].set()
        go[2].set()
        assert await fraction() == pytest.approx(0.875)
        go[3].set()
        await handle.wait()


async def test_the_records_of_children_are_kept_while_their_parent_is_active(
    taskmill_scheduler: SchedulerFactory,
) -> None:
    domain = Domain("d")
    seen: list[int] = []

    @domain.task
    async def part(n: int) -> int:
        return n

    @domain.task
    async def whole(ctx: Context) -> None:
        await ctx.spawn_many(part.prepare(n) for n in range(30))

    @whole.finalize
    async def finish(ctx: Context) -> None:
        await scheduler.prune()
        seen.extend([len(ctx.children), len(await scheduler.history(parent=ctx.task.id))])

    scheduler = await taskmill_scheduler(domains=[domain], retention=Retention(max_count=5))
    await whole.submit()
    await scheduler.run_until_idle()
    assert seen == [30, 30]
    assert len(await scheduler.history()) == 5
