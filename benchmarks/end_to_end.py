"""``e2e_vs_raw``: a no-op task's whole life against the bare loop of :mod:`benchmarks.raw_sqlite`.

Both sides store all tasks, then take every one through claim and completion into history, and end when the
last one is durable there. taskmill submits in chunks of 1,000 and runs with ``max_concurrency=100``, because
the bare loop works in batches of 100; other values are reported beside it. Retention is off on our side,
since the bare loop deletes no history either. Opening the file is not counted on either side.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from benchmarks.measuring import Report, Settings, Target, interleaved, median_ratio, summary
from benchmarks.raw_sqlite import BATCH, RawQueue
from benchmarks.workload import CHUNK, domain, fill
from taskmill import Scheduler

CONCURRENCY = 100
OTHERS = (8, 256)


def measure(settings: Settings) -> Report:
    report = Report()
    sides = {f"taskmill_{n}": partial(_taskmill, settings, n) for n in (CONCURRENCY, *OTHERS)}
    rates = interleaved(settings.rounds, {"raw": partial(_raw, settings), **sides})
    for name, found in rates.items():
        report.about[f"{name}_tasks_per_s"] = summary(found)
    report.add("e2e_vs_raw", median_ratio(rates[f"taskmill_{CONCURRENCY}"], rates["raw"]), Target(">=", 0.4))
    for n in OTHERS:
        ratio = median_ratio(rates[f"taskmill_{n}"], rates["raw"])
        report.about[f"ratio_at_max_concurrency_{n}"] = round(ratio, 3)
    report.about |= {
        "tasks": settings.tasks,
        "max_concurrency": CONCURRENCY,
        "submit_many_chunk": CHUNK,
        "raw_batch": BATCH,
    }
    return report


def _taskmill(settings: Settings, max_concurrency: int) -> float:
    file = settings.new_file("e2e")

    async def live() -> float:
        scheduler = Scheduler(file, domains=[domain], max_concurrency=max_concurrency, retention=None)
        async with scheduler:
            began = time.perf_counter()
            await fill(scheduler, settings.tasks)
            await scheduler.run_until_idle()
            took = time.perf_counter() - began
            if (ended := await scheduler.count(status="completed")) != settings.tasks:
                raise AssertionError(f"{ended} of {settings.tasks} tasks are in history")
            return took

    took = asyncio.run(live())
    settings.discard(file)
    return settings.tasks / took


def _raw(settings: Settings) -> float:
    file = settings.new_file("raw")
    queue = RawQueue(file)
    began = time.perf_counter()
    queue.insert(settings.tasks)
    done = queue.work()
    took = time.perf_counter() - began
    queue.close()
    settings.discard(file)
    if done != settings.tasks:
        raise AssertionError(f"{done} of {settings.tasks} rows are in history")
    return settings.tasks / took
