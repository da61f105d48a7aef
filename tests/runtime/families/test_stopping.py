"""Whole trees are stopped when they are cancelled, superseded or expire."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from taskmill import Context, Domain, Retry
from taskmill.events import TaskCancelled, TaskWaiting
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.records import active, ended


async def test_cancelling_a_tree_runs_every_hook_leaves_first(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    hooks: list[str] = []
    started = asyncio.Event()

    @domain.task
    async def node(ctx: Context, name: str, depth: int) -> None:
        if depth:
            await ctx.spawn_many(node.prepare(f"{name}{n}", depth - 1) for n in range(2))
            return
        if name == "r11":
            started.set()
        try:
            await asyncio.Event().wait()
        finally:
            hooks.append(f"end {name}")

    @node.on_cancel
    async def cleaned(ctx: Context, name: str, depth: int) -> None:
        hooks.append(name)

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=8)
    listener = scheduler.events(TaskCancelled)
    waiting = scheduler.events(TaskWaiting)
    async with scheduler.running():
        root = await node.submit("r", 2)
        await started.wait()
        assert len([await anext(waiting) for _ in range(3)]) == 3
        assert await root.cancel()
        record = await root.wait()
    assert record.ending == "cancelled"
    leaves, parents = ["r00", "r01", "r10", "r11"], ["r0", "r1"]
    assert sorted(hooks[:4]) == [f"end {leaf}" for leaf in leaves]
    assert sorted(hooks[4:8]) == leaves
    assert sorted(hooks[8:10]) == parents
    assert hooks[10:] == ["r"]
    assert await scheduler.count(status="cancelled") == 7
    assert await scheduler.tasks() == []
    told = [(await anext(listener)).task_id for _ in range(7)]
    assert told[-1] == root.id


async def test_a_waiting_parent_is_cancelled_even_when_no_slot_is_free(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    hooks: list[str] = []
    go = asyncio.Event()

    @domain.task
    async def other() -> None:
        await go.wait()

    @domain.task
    async def whole(ctx: Context) -> None:
        await ctx.spawn(other.options(priority=255).prepare())

    @whole.on_cancel
    async def hook(ctx: Context) -> None:
        hooks.append("hook")

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
    async with scheduler.running():
        handle = await whole.submit()
        await manual_clock.advance(0)
        busy = await other.options(priority=0).submit()
        await manual_clock.advance(0)
        await handle.cancel()
        assert (await handle.wait()).ending == "cancelled"
        assert hooks == ["hook"]
        go.set()
        await busy.wait()


# Superseding


@pytest.mark.parametrize("state", ["running", "waiting", "finalizing"])
async def test_superseding_a_parent_waits_for_its_whole_tree(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock, state: str
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    there = asyncio.Event()

    @domain.task
    async def part(version: int) -> None:
        if version == 1 and state != "finalizing":
            if state == "waiting":
                there.set()
            try:
                await asyncio.Event().wait()
            finally:
                happened.append("part ended")

    @part.on_cancel
    async def part_hook(version: int) -> None:
        happened.append("part hook")

    @domain.task(key="k", on_duplicate="supersede")
    async def whole(ctx: Context, version: int) -> None:
        happened.append(f"start {version} {ctx.replaced}")
        await ctx.save(version=version)
        await ctx.spawn(part.prepare(version))
        if version == 1 and state == "running":
            there.set()
            await asyncio.Event().wait()

    @whole.on_cancel
    async def whole_hook(ctx: Context, version: int) -> None:
        happened.append("whole hook")

    @whole.finalize
    async def finish(ctx: Context, version: int) -> None:
        if version == 1:
            there.set()
            await asyncio.Event().wait()
        happened.append(f"finalize {version}")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        old = await whole.submit(1)
        await there.wait()
        await manual_clock.advance(0)
        assert (await active(scheduler, old.id)).status == ("waiting" if state == "waiting" else "running")
        new = await whole.submit(2)
        assert (new.kind, new.replaced_id) == ("superseded", old.id)
        assert (await new.wait()).ending == "completed"
    assert (await ended(scheduler, old.id)).ending == "superseded"
    start = happened.index("start 2 {'version': 1}")
    before = happened[:start]
    assert before[0] == "start 1 None"
    assert before[-1] == "whole hook"
    assert ("part hook" in before) == (state != "finalizing")
    assert happened[start + 1 :] == ["finalize 2"]


async def test_a_replaced_child_is_replaced_in_the_eyes_of_its_parent(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")
    go = asyncio.Event()

    @domain.task(key="part", on_duplicate="supersede")
    async def part(version: int) -> int:
        if version == 1:
            started.set()
            await go.wait()
        return version

    @domain.task
    async def whole(ctx: Context) -> None:
        await ctx.spawn(part.prepare(1))

    @whole.finalize
    async def finish(ctx: Context) -> list[tuple[str, int | None]]:
        return [(child.ending, child.result) for child in ctx.children]

    started = asyncio.Event()
    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        handle = await whole.submit()
        await started.wait()
        new = await part.submit(2)
        assert new.kind == "superseded"
        assert (await handle.wait()).result == [["superseded", None], ["completed", 2]]
    assert (await ended(scheduler, new.id)).parent_id == handle.id


# Expiring


@pytest.mark.parametrize("policy", ["complete", "cancel"])
@pytest.mark.parametrize("said_by", ["child", "parent"])
async def test_an_expiring_parent_takes_its_waiting_descendants_with_it(
    taskmill_scheduler: SchedulerFactory,
    any_store: str,
    manual_clock: ManualClock,
    said_by: str,
    policy: Literal["complete", "cancel"],
) -> None:
    domain = Domain("d")
    go, started = asyncio.Event(), asyncio.Event()
    of_child: Literal["complete", "cancel"] = policy if said_by == "child" else "complete"
    of_parent: Literal["complete", "cancel"] = policy if said_by == "parent" else "complete"

    @domain.task(on_parent_expiry=of_child, priority=1)
    async def running() -> str:
        started.set()
        await go.wait()
        return "done"

    @domain.task(ttl=None)
    async def waiting() -> None:
        raise AssertionError("it has expired")

    @domain.task(ttl=60, retry=Retry.constant(3, delay=100), on_parent_expiry=of_parent)
    async def whole(ctx: Context) -> None:
        await ctx.spawn_many([running.prepare(), *(waiting.options(run_after=1000).prepare() for _ in range(3))])
        await started.wait()
        raise ValueError("later")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        handle = await whole.submit()
        await started.wait()
        await manual_clock.advance(30)
        assert (await active(scheduler, handle.id)).status == "scheduled"
        await manual_clock.advance(31)
        assert (await handle.wait()).ending == "expired"
        go.set()
        await manual_clock.advance(0)
    endings = [child.ending for child in await scheduler.history(parent=handle.id)]
    assert sorted(endings) == sorted(["expired"] * 3 + ["completed" if policy == "complete" else "cancelled"])
    assert await scheduler.tasks() == []


async def test_a_parent_that_expires_makes_room_for_the_run_that_was_added(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    started = asyncio.Event()

    @domain.task(ttl=None, on_parent_expiry="cancel")
    async def part(n: int) -> None:
        if n == 1:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                happened.append("part 1 ended")

    @domain.task(key="k", on_duplicate="requeue", retry=Retry.constant(3, delay=100))
    async def whole(ctx: Context, n: int) -> None:
        happened.append(f"whole {n}")
        await ctx.spawn(part.prepare(n))
        if n == 1:
            await started.wait()
            await manual_clock.sleep(5)
            raise ValueError("later")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        first = await whole.options(ttl=30).submit(1)
        await started.wait()
        again = await whole.options(ttl=None).submit(2)
        assert again.kind == "requeued"
        await manual_clock.advance(31)
        assert (await first.wait()).ending == "expired"
        assert (await again.wait()).ending == "completed"
    assert sorted(happened) == ["part 1 ended", "whole 1", "whole 2"]
    assert await scheduler.tasks() == []
