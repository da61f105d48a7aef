"""``pg_e2e_vs_raw``: a no-op task's whole life on PostgreSQL against the bare loop of :mod:`benchmarks.raw_postgres`.

A server of its own runs beside the measurement, from the binaries that the tests use, with ``fsync`` on. As in
:mod:`benchmarks.end_to_end` taskmill submits in chunks of 1,000 and runs with ``max_concurrency=100``, because the bare
loop works in batches of 100.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from tests.postgres.keeper import Server

from benchmarks.measuring import Report, Settings, Target, interleaved, median_ratio, summary
from benchmarks.pg_server import bench_server, new_database
from benchmarks.raw_postgres import BATCH, RawQueue
from benchmarks.workload import CHUNK, domain, fill
from taskmill import Scheduler

CONCURRENCY = 100
OTHERS = (8, 500)


def measure(settings: Settings) -> Report:
    report = Report()
    with bench_server() as server:
        sides = {f"taskmill_{n}": partial(_taskmill, server, settings, n) for n in (CONCURRENCY, *OTHERS)}
        rates = interleaved(settings.rounds, {"raw": partial(_raw, server, settings), **sides})
    for name, found in rates.items():
        report.about[f"{name}_tasks_per_s"] = summary(found)
    report.add("pg_e2e_vs_raw", median_ratio(rates[f"taskmill_{CONCURRENCY}"], rates["raw"]), Target(">=", 0.3))
    for n in OTHERS:
        ratio = median_ratio(rates[f"taskmill_{n}"], rates["raw"])
        report.about[f"ratio_at_max_concurrency_{n}"] = round(ratio, 3)
    report.about |= {"tasks": settings.tasks, "submit_many_chunk": CHUNK, "raw_batch": BATCH}
    return report


def _taskmill(server: Server, settings: Settings, max_concurrency: int) -> float:
    place = new_database(server)

    async def live() -> float:
        scheduler = Scheduler(place, domains=[domain], max_concurrency=max_concurrency, retention=None)
        async with scheduler:
            began = time.perf_counter()
            await fill(scheduler, settings.tasks)
            await scheduler.run_until_idle()
            took = time.perf_counter() - began
            if (ended := await scheduler.count(status="completed")) != settings.tasks:
                raise AssertionError(f"{ended} of {settings.tasks} tasks are in history")
            return took

    return settings.tasks / asyncio.run(live())


def _raw(server: Server, settings: Settings) -> float:
    queue = RawQueue(new_database(server))
    began = time.perf_counter()
    queue.insert(settings.tasks)
    done = queue.work()
    took = time.perf_counter() - began
    queue.close()
    if done != settings.tasks:
        raise AssertionError(f"{done} of {settings.tasks} rows are in history")
    return settings.tasks / took
