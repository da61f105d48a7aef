"""``fan_out_vs_plain``: rate at which one parent spawns, runs and finalizes its children, over the rate of submitting
and running as many plain tasks.

The parent spawns with ``spawn_many`` and the plain side submits with ``submit_many``, in the same chunks, both durable.
Both sides submit while they dispatch, at the default ``max_concurrency``. The clock stops when the last task, on the
one side the parent with its ``finalize``, is durable in history.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from benchmarks.measuring import Report, Settings, Target, interleaved, summary
from benchmarks.workload import CHUNK, fill
from taskmill import Context, Domain, Scheduler


def measure(settings: Settings) -> Report:
    children = 2_000 if settings.quick else 10_000
    rates = interleaved(
        settings.rounds,
        {
            "fan_out": partial(_rate, settings, children, _fan_out),
            "plain": partial(_rate, settings, children, _plain),
        },
    )
    report = Report()
    for name, found in rates.items():
        report.about[f"{name}_tasks_per_s"] = summary(found)
    report.about |= {"children": children, "chunk": CHUNK}
    report.add_ratio("fan_out_vs_plain", rates["fan_out"], rates["plain"], Target(">=", 0.5))
    return report


tree = Domain("bench")


@tree.task
async def noop(i: int) -> None:
    """Do nothing."""


@tree.task
async def parent(ctx: Context, children: int) -> None:
    for start in range(0, children, CHUNK):
        await ctx.spawn_many([noop.prepare(i) for i in range(start, min(start + CHUNK, children))])


@parent.finalize
async def count(ctx: Context, children: int) -> int:
    return len(ctx.children)


async def _fan_out(scheduler: Scheduler, children: int) -> None:
    handle = await parent.submit(children)
    await scheduler.run_until_idle()
    if (await handle.wait()).result != children:
        raise AssertionError("finalize saw other children")


async def _plain(scheduler: Scheduler, tasks: int) -> None:
    async with scheduler.running():
        await fill(scheduler, tasks)
    await scheduler.run_until_idle()


def _rate(settings: Settings, tasks: int, work: Callable[[Scheduler, int], Awaitable[None]]) -> float:
    file = settings.new_file("fan")

    async def live() -> float:
        async with Scheduler(file, domains=[tree], retention=None) as scheduler:
            began = time.perf_counter()
            await work(scheduler, tasks)
            took = time.perf_counter() - began
            ended = await scheduler.count(status="completed", type=noop.name)
            if ended != tasks:
                raise AssertionError(f"{ended} of {tasks} tasks are in history")
            return took

    took = asyncio.run(live())
    settings.discard(file)
    return tasks / took
