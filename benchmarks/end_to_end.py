"""``e2e_vs_raw``: a no-op task's whole life against the bare loop of :mod:`benchmarks.raw_sqlite`.

Both sides store all tasks, then take every one through claim and completion into history, and end when the
last one is durable there. taskmill submits in chunks of 1,000 and runs with its defaults: 8 slots, and a
retention that deletes old history, which the bare loop never does. ``e2e_vs_raw_100_slots`` has as many slots
as the bare loop has rows in a batch. Opening the file is not counted on either side.

``about`` also has ``raw_with_handlers_vs_raw``: the bare loop when it runs a handler for each row in an asyncio task of
its own. No scheduler with asyncio handlers can be faster than that.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from benchmarks.measuring import Report, Settings, Target, interleaved, ratios, summary
from benchmarks.raw_sqlite import BATCH, RawQueue
from benchmarks.workload import CHUNK, DEFAULT_SLOTS, check_all_ended, domain, fill, noop
from taskmill import Scheduler


def measure(settings: Settings) -> Report:
    report = Report()
    rates = interleaved(
        settings.rounds,
        {
            "raw": partial(_raw, settings),
            "raw_with_handlers": partial(_raw, settings, with_handlers=True),
            "taskmill": partial(_taskmill, settings, DEFAULT_SLOTS),
            "taskmill_100_slots": partial(_taskmill, settings, 100),
        },
    )
    for name, found in rates.items():
        report.about[f"{name}_tasks_per_s"] = summary(found)
    report.add_ratio("e2e_vs_raw", rates["taskmill"], rates["raw"], Target(">=", 0.65))
    report.add_ratio("e2e_vs_raw_100_slots", rates["taskmill_100_slots"], rates["raw"], Target(">=", 0.75))
    report.about["raw_with_handlers_vs_raw"] = summary(ratios(rates["raw_with_handlers"], rates["raw"]))
    report.about |= {
        "tasks": settings.tasks,
        "max_concurrency": DEFAULT_SLOTS,
        "submit_many_chunk": CHUNK,
        "raw_batch": BATCH,
    }
    return report


def _taskmill(settings: Settings, slots: int) -> float:
    file = settings.new_file("e2e")

    async def live() -> float:
        async with Scheduler(file, domains=[domain], max_concurrency=slots) as scheduler:
            began = time.perf_counter()
            await fill(scheduler, settings.tasks)
            await scheduler.run_until_idle()
            took = time.perf_counter() - began
            await check_all_ended(scheduler, settings.tasks)
            return took

    took = asyncio.run(live())
    settings.discard(file)
    return settings.tasks / took


def _raw(settings: Settings, *, with_handlers: bool = False) -> float:
    file = settings.new_file("raw")
    queue = RawQueue(file)
    began = time.perf_counter()
    queue.insert(settings.tasks)
    done = asyncio.run(queue.work_with_handlers(noop)) if with_handlers else queue.work()
    took = time.perf_counter() - began
    queue.close()
    settings.discard(file)
    if done != settings.tasks:
        raise AssertionError(f"{done} of {settings.tasks} rows are in history")
    return settings.tasks / took
