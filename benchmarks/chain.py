"""``chain_hop_vs_plain``: time per hop in a chain of tasks, each of which depends on the one before, over time per
plain task, one running at a time.

The plain tasks have keys, so that they are not prefetched: a hop cannot be either, since the next task waits for it.
Both sides store their tasks with one ``submit_many`` and then dispatch with ``max_concurrency=1``; storing is not
counted. ``about`` has the same against plain tasks of which each is submitted when the one before has ended: that is
what a program without dependencies would do, and it waits for the disk twice per task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from benchmarks.measuring import Report, Settings, Target, interleaved, ratios, summary
from benchmarks.workload import domain, noop
from taskmill import Scheduler
from taskmill.model.submission import Submission

LENGTH = 1_000


def measure(settings: Settings) -> Report:
    times = interleaved(
        settings.rounds,
        {
            "chain": partial(_timed, settings, partial(_stored_first, _chain())),
            "plain": partial(_timed, settings, partial(_stored_first, _plain())),
            "one_by_one": partial(_timed, settings, _one_by_one),
        },
    )
    report = Report()
    for name, found in times.items():
        report.about[f"{name}_us_per_task"] = summary([seconds * 1e6 / LENGTH for seconds in found])
    report.add_ratio("chain_hop_vs_plain", times["chain"], times["plain"], Target("<=", 1.5))
    report.about["ratio_to_one_by_one"] = summary(ratios(times["chain"], times["one_by_one"]))
    report.about["length"] = LENGTH
    return report


def _plain() -> list[Submission]:
    return [noop.options(key=str(i)).prepare(i) for i in range(LENGTH)]


def _chain() -> list[Submission]:
    links = [noop.options(ref="0").prepare(0)]
    links += [noop.options(ref=str(i), depends_on=str(i - 1)).prepare(i) for i in range(1, LENGTH)]
    return links


async def _stored_first(submissions: Sequence[Submission], scheduler: Scheduler) -> float:
    await scheduler.submit_many(submissions)
    began = time.perf_counter()
    await scheduler.run_until_idle()
    return time.perf_counter() - began


async def _one_by_one(scheduler: Scheduler) -> float:
    async with scheduler.running():
        began = time.perf_counter()
        for i in range(LENGTH):
            await (await noop.submit(i)).wait()
        return time.perf_counter() - began


def _timed(settings: Settings, work: Callable[[Scheduler], Awaitable[float]]) -> float:
    file = settings.new_file("chain")

    async def live() -> float:
        async with Scheduler(file, domains=[domain], max_concurrency=1, retention=None) as scheduler:
            took = await work(scheduler)
            if (ended := await scheduler.count(status="completed")) != LENGTH:
                raise AssertionError(f"{ended} of {LENGTH} tasks are in history")
            return took

    took = asyncio.run(live())
    settings.discard(file)
    return took
