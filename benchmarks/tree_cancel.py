"""``tree_cancel_commits``: how many plain group commits it takes to cancel a tree of 10,000 tasks.

The tree has three levels: a root and 99 parents that wait, and 9,900 leaves, of which eight run and the others wait in
the queue. Every type has an ``on_cancel`` hook; those of the running leaves, of the 99 parents and of the root have to
run, leaves before parents. The clock runs from the call of ``cancel`` until all 10,000 are in history, durably.

A plain group commit is a durable ``submit_many`` of 500 plain tasks, median of 20, in the same file before the tree is
built.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import NamedTuple

from benchmarks.measuring import Report, Settings, Target, flush_to_disk, summary
from benchmarks.workload import noop as plain
from taskmill import Context, Domain, Scheduler
from taskmill.events import TaskWaiting

PARENTS, LEAVES, RUNNING = 99, 100, 8
COMMIT, COMMITS = 500, 20


def measure(settings: Settings) -> Report:
    parents = 19 if settings.quick else PARENTS
    found = [asyncio.run(_cancel(settings, parents)) for _ in range(settings.rounds)]
    report = Report()
    report.about["cancel_ms"] = summary([one.cancel * 1000 for one in found])
    report.about["answer_ms"] = summary([one.answer * 1000 for one in found])
    report.about["commit_ms"] = summary([one.commit * 1000 for one in found])
    report.about |= {"tasks": 1 + parents + parents * LEAVES, "tasks_per_commit": COMMIT}
    cancels, commits = [one.cancel for one in found], [one.commit for one in found]
    report.add_ratio("tree_cancel_commits", cancels, commits, Target("<=", 20))
    return report


class _Times(NamedTuple):
    cancel: float
    answer: float
    """Milliseconds until ``cancel`` returned."""
    commit: float


async def _cancel(settings: Settings, parents: int) -> _Times:
    domain = Domain("bench")
    hooks = 0
    at_work = asyncio.Event()
    running = 0

    def hook() -> None:
        nonlocal hooks
        hooks += 1

    @domain.task(name="noop")
    async def noop(i: int) -> None:
        """Do nothing; it never runs."""

    @domain.task
    async def leaf(i: int) -> None:
        nonlocal running
        running += 1
        if running == RUNNING:
            at_work.set()
        await asyncio.Event().wait()

    @domain.task(priority=10)
    async def branch(ctx: Context, i: int) -> None:
        await ctx.spawn_many([leaf.options(priority=200).prepare(n) for n in range(LEAVES)])

    @domain.task(priority=10)
    async def root(ctx: Context) -> None:
        await ctx.spawn_many([branch.prepare(n) for n in range(parents)])

    @leaf.on_cancel
    async def leaf_hook(i: int) -> None:
        hook()

    @branch.on_cancel
    async def branch_hook(i: int) -> None:
        hook()

    @root.on_cancel
    async def root_hook() -> None:
        hook()

    file = settings.new_file("tree")
    async with Scheduler(file, domains=[domain], max_concurrency=RUNNING, retention=None) as scheduler:
        commits: list[float] = []
        for start in range(COMMITS):
            batch = [plain.options(run_after=86_400).prepare(i) for i in range(start, start + COMMIT)]
            began = time.perf_counter()
            await scheduler.submit_many(batch)
            commits.append(time.perf_counter() - began)
        async with scheduler.running():
            waiting = scheduler.events(TaskWaiting)
            handle = await root.submit()
            for _ in range(parents + 1):
                await anext(waiting)
            await waiting.aclose()
            await at_work.wait()
            flush_to_disk()
            ended = asyncio.create_task(handle.wait())
            await asyncio.sleep(0)
            began = time.perf_counter()
            await scheduler.cancel(handle.id)
            answer = time.perf_counter() - began
            await ended
            took = time.perf_counter() - began
        tasks = 1 + parents + parents * LEAVES
        if (count := await scheduler.count(status="cancelled")) != tasks:
            raise AssertionError(f"{count} of {tasks} tasks were cancelled")
        if hooks != RUNNING + parents + 1:
            raise AssertionError(f"{hooks} hooks ran")
    settings.discard(file)
    return _Times(took, answer, statistics.median(commits))
