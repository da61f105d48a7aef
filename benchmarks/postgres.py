"""``pg_e2e_vs_raw``: a no-op task's whole life on PostgreSQL against the bare loop of :mod:`benchmarks.raw_postgres`.

A server of its own runs beside the measurement, from the binaries that the tests use, with ``fsync`` on. As in
:mod:`benchmarks.end_to_end` taskmill submits in chunks of 1,000 and runs with its defaults; ``pg_e2e_vs_raw_100_slots``
has as many slots as the bare loop has rows in a batch.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from tests.postgres.keeper import Server

from benchmarks.measuring import Report, Settings, Target, interleaved, summary
from benchmarks.pg_server import bench_server, new_database
from benchmarks.raw_postgres import BATCH, RawQueue
from benchmarks.workload import CHUNK, DEFAULT_SLOTS, check_all_ended, domain, fill
from taskmill import Scheduler


def measure(settings: Settings) -> Report:
    report = Report()
    with bench_server() as server:
        rates = interleaved(
            settings.rounds,
            {
                "raw": partial(_raw, server, settings),
                "taskmill": partial(_taskmill, server, settings, DEFAULT_SLOTS),
                "taskmill_100_slots": partial(_taskmill, server, settings, 100),
            },
        )
    for name, found in rates.items():
        report.about[f"{name}_tasks_per_s"] = summary(found)
    report.add_ratio("pg_e2e_vs_raw", rates["taskmill"], rates["raw"], Target(">=", 0.3))
    report.add_ratio("pg_e2e_vs_raw_100_slots", rates["taskmill_100_slots"], rates["raw"], Target(">=", 0.3))
    report.about |= {
        "tasks": settings.tasks,
        "max_concurrency": DEFAULT_SLOTS,
        "submit_many_chunk": CHUNK,
        "raw_batch": BATCH,
    }
    return report


def _taskmill(server: Server, settings: Settings, slots: int) -> float:
    place = new_database(server)

    async def live() -> float:
        async with Scheduler(place, domains=[domain], max_concurrency=slots) as scheduler:
            began = time.perf_counter()
            await fill(scheduler, settings.tasks)
            await scheduler.run_until_idle()
            took = time.perf_counter() - began
            await check_all_ended(scheduler, settings.tasks)
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
