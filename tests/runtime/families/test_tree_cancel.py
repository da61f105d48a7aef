"""Cancelling a large tree in one call is fast, and runs every hook that is due, leaves before parents."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Any

from taskmill import Context, Domain, Scheduler
from taskmill.events import TaskCancelled, TaskWaiting
from tests.both_engines import Engine
from tests.repetition import often

BRANCHES, RUNNING = 20, 8
COMMIT = 500
LONGEST = 25
"""How many transactions cancelling may take, and how many times the CPU time of a plain group commit; it takes about
ten of the first and five of the second."""


async def test_a_tree_of_three_levels_is_cancelled_in_one_call(tmp_path: Path, engine: Engine) -> None:
    leaves = min(engine.fewer(often(100)), 100)
    domain = Domain("d")
    hooked: list[tuple[str, int]] = []
    started: list[int] = []
    at_work = asyncio.Event()

    @domain.task
    async def plain(i: int) -> None: ...

    @domain.task(priority=200)
    async def leaf(ctx: Context) -> None:
        started.append(ctx.task.id)
        if len(started) == RUNNING:
            at_work.set()
        await asyncio.Event().wait()

    @domain.task(priority=10)
    async def branch(ctx: Context) -> None:
        await ctx.spawn_many([leaf.options(priority=200).prepare() for _ in range(leaves)])

    @domain.task(priority=10)
    async def root(ctx: Context) -> None:
        await ctx.spawn_many([branch.prepare() for _ in range(BRANCHES)])

    @leaf.on_cancel
    async def leaf_hook(ctx: Context) -> None:
        hooked.append(("leaf", ctx.task.id))

    @branch.on_cancel
    async def branch_hook(ctx: Context) -> None:
        hooked.append(("branch", ctx.task.id))

    @root.on_cancel
    async def root_hook(ctx: Context) -> None:
        hooked.append(("root", ctx.task.id))

    async with Scheduler(tmp_path / "tasks.db", domains=[domain], max_concurrency=RUNNING) as scheduler:
        commits: list[float] = []
        for _ in range(10):
            began = time.process_time()
            await scheduler.submit_many([plain.options(run_after=3600).prepare(i) for i in range(COMMIT)])
            commits.append(time.process_time() - began)
        async with scheduler.running():
            waiting = scheduler.events(TaskWaiting)
            top = await root.submit()
            for _ in range(1 + BRANCHES):
                await anext(waiting)
            await at_work.wait()
            parents = {record.id: record.parent_id for record in await scheduler.tasks(limit=10_000)}
            listener = scheduler.events(TaskCancelled)
            store: Any = scheduler._store
            began, before = time.process_time(), store._requests.commits
            assert await top.cancel()
            assert (await top.wait()).ending == "cancelled"
            took, transactions = time.process_time() - began, store._requests.commits - before
            ended = [(await anext(listener)).task_id for _ in range(1 + BRANCHES * (1 + leaves))]
        assert await scheduler.count(status="cancelled") == 1 + BRANCHES * (1 + leaves)
        assert await scheduler.count(status="scheduled") == 10 * COMMIT, "other tasks are unaffected"
        assert await scheduler.count(status="waiting") == await scheduler.count(status="running") == 0

    place = {id: position for position, id in enumerate(ended)}
    assert len(place) == len(ended), "each ends once"
    for id in ended:
        parent = parents[id]
        assert parent is None or place[id] < place[parent], "children end before their parents"
    assert sorted(id for what, id in hooked if what == "leaf") == sorted(started), "only started tasks need clean-up"
    assert [what for what, _ in hooked].count("branch") == BRANCHES
    assert hooked[-1] == ("root", top.id)
    hook_place = {id: position for position, (_, id) in enumerate(hooked)}
    assert all(hook_place[id] < hook_place[parents[id] or 0] for id in started), "leaves before parents"
    assert transactions < LONGEST
    assert took < LONGEST * statistics.median(commits)
