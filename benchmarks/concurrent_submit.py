"""``submit_concurrent_vs_raw``: 200 callers that each await one durable ``task.submit(i)`` after the other.

The bare inserts of :mod:`benchmarks.raw_sqlite` use the same table, in batches of 100, with the same fsync per commit.
On our side every submit is acknowledged on its own and returns after its commit. The benchmark measures how well
callers share commits. Nothing is dispatched meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from benchmarks.measuring import Report, Settings, Target, interleaved, summary
from benchmarks.raw_sqlite import BATCH, RawQueue
from benchmarks.workload import domain, noop
from taskmill import Scheduler

CALLERS = 200


def measure(settings: Settings) -> Report:
    rates = interleaved(settings.rounds, {"raw": partial(_raw, settings), "taskmill": partial(_taskmill, settings)})
    report = Report()
    for name, found in rates.items():
        report.about[f"{name}_submits_per_s"] = summary(found)
    report.about |= {"submits": settings.tasks, "callers": CALLERS, "raw_batch": BATCH}
    report.add_ratio("submit_concurrent_vs_raw", rates["taskmill"], rates["raw"], Target(">=", 0.4))
    return report


def _taskmill(settings: Settings) -> float:
    file = settings.new_file("submit")

    async def call(numbers: range) -> None:
        for i in numbers:
            await noop.submit(i)

    async def submit_all() -> float:
        async with Scheduler(file, domains=[domain]) as scheduler:
            began = time.perf_counter()
            async with asyncio.TaskGroup() as callers:
                for first in range(CALLERS):
                    callers.create_task(call(range(first, settings.tasks, CALLERS)))
            took = time.perf_counter() - began
            if (stored := await scheduler.count(status="pending")) != settings.tasks:
                raise AssertionError(f"{stored} of {settings.tasks} tasks are stored")
            return took

    took = asyncio.run(submit_all())
    settings.discard(file)
    return settings.tasks / took


def _raw(settings: Settings) -> float:
    file = settings.new_file("raw")
    queue = RawQueue(file)
    began = time.perf_counter()
    queue.insert(settings.tasks)
    took = time.perf_counter() - began
    queue.close()
    settings.discard(file)
    return settings.tasks / took
