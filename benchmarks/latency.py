"""``latency_p50_ms``, ``latency_p99_ms``: from the call of ``submit`` to the start of the handler, on an idle
scheduler.

One task at a time, each after the one before has ended and the scheduler has gone back to sleep. Full
durability: the time includes two commits, the submission's and the claim's. ``about`` has the cost of a commit of one
row in the bare loop on this disk, measured in the same run.
"""

from __future__ import annotations

import asyncio
import statistics
import time

from benchmarks.measuring import Report, Settings, Target, percentile, significant, spread
from benchmarks.raw_sqlite import RawQueue
from taskmill import Domain, Scheduler

PAUSE = 0.003
TARGETS = {50: Target("<=", 1.2)}
"""Targets, by percentile."""


def measure(settings: Settings) -> Report:
    submitted, started = asyncio.run(_sample(settings))
    report = Report()
    for percent in (50, 99):
        report.add(f"latency_p{percent}_ms", percentile(started, percent), TARGETS.get(percent))
        report.about[f"submit_returns_p{percent}_ms"] = significant(percentile(submitted, percent))
    report.about |= {
        "started_ms": spread(started),
        "samples": settings.samples,
        "one_raw_commit_p50_ms": _raw_commit(settings),
    }
    return report


async def _sample(settings: Settings) -> tuple[list[float], list[float]]:
    """Return the milliseconds until ``submit`` returned, and until the handler started."""
    domain = Domain("bench")
    began_at = 0.0
    submitted: list[float] = []
    started: list[float] = []
    ran = asyncio.Event()

    @domain.task
    async def noop(i: int) -> None:
        started.append((time.perf_counter() - began_at) * 1000)
        ran.set()

    file = settings.new_file("latency")
    async with Scheduler(file, domains=[domain]) as scheduler, scheduler.running():
        for i in range(settings.samples):
            ran.clear()
            began_at = time.perf_counter()
            handle = await noop.submit(i)
            submitted.append((time.perf_counter() - began_at) * 1000)
            await ran.wait()
            await handle.wait()
            await asyncio.sleep(PAUSE)
    settings.discard(file)
    return submitted, started


def _raw_commit(settings: Settings) -> float:
    file = settings.new_file("raw")
    queue = RawQueue(file)
    times: list[float] = []
    for i in range(200):
        began = time.perf_counter()
        queue.connection.execute(
            "INSERT INTO taskmill_task (type, group_name, priority, urgency, status, payload, created_at, queued_at)"
            " VALUES ('bench::noop', '', 128, 128, 'pending', ?, 0, 0)",
            (f'{{"i":{i}}}',),
        )
        times.append((time.perf_counter() - began) * 1000)
        time.sleep(PAUSE)
    queue.close()
    settings.discard(file)
    return significant(statistics.median(times))
