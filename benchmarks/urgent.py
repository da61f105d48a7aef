"""``urgent_inversion_ms``: how long less urgent tasks still start after a more urgent one was submitted.

Thousands of tasks of 1 ms wait for the default of 8 slots. At random moments the same process submits a task of high
priority, which does not preempt: it should get the next slot. The measured time is from the return of ``submit`` to the
last start of a less urgent task before the urgent one starts; it is 0 if none started in between. The number is the
99th percentile of all trials; with fewer than 100 trials that is the worst. ``pg_…`` is the same on a PostgreSQL server
of its own.
"""

from __future__ import annotations

import asyncio
import random
import time

from benchmarks.measuring import Report, Settings, Target, percentile, significant, spread
from benchmarks.pg_server import bench_server, new_database
from benchmarks.workload import CHUNK, DEFAULT_SLOTS
from taskmill import Domain, Priority, Scheduler

WORK = 0.001
LEAST, MOST = 3_000, 6_000
"""Waiting tasks: below the first number more are submitted between two trials, up to the second."""
PAUSE = (0.01, 0.05)
"""Seconds between two trials, at random: longer than a turn, so that the phase of the turn does not matter."""


def measure(settings: Settings) -> Report:
    trials = 50 if settings.quick else 200
    report = Report()
    file = settings.new_file("urgent")
    _add(report, "", asyncio.run(_sample(str(file), trials)))
    settings.discard(file)
    with bench_server() as server:
        _add(report, "pg_", asyncio.run(_sample(new_database(server), trials)))
    report.about |= {"trials": trials, "waiting": f"{LEAST} to {MOST}", "max_concurrency": DEFAULT_SLOTS}
    return report


def _add(report: Report, prefix: str, found: list[tuple[float, float]]) -> None:
    inversions, starts = [inversion for inversion, _ in found], [start for _, start in found]
    report.add(f"{prefix}urgent_inversion_ms", percentile(inversions, 99), Target("<=", 10))
    report.about[f"{prefix}inversion_p50_ms"] = significant(percentile(inversions, 50))
    report.about[f"{prefix}inversion_ms"] = spread(inversions)
    report.about[f"{prefix}urgent_start_after_submit_ms"] = spread(starts)


async def _sample(place: str, trials: int) -> list[tuple[float, float]]:
    """Return the milliseconds of inversion of each trial, and those until the urgent task started."""
    domain = Domain("bench")
    started = submitted = 0
    last_at = before_at = urgent_at = 0.0
    ran = asyncio.Event()

    @domain.task
    async def plain(i: int) -> None:
        nonlocal started, last_at
        started += 1
        last_at = time.perf_counter()
        await asyncio.sleep(WORK)

    @domain.task(priority=Priority.HIGH)
    async def urgent() -> None:
        nonlocal before_at, urgent_at
        before_at, urgent_at = last_at, time.perf_counter()
        ran.set()

    async def refill() -> None:
        nonlocal submitted
        while submitted - started < MOST:
            await scheduler.submit_many([plain.prepare(i) for i in range(CHUNK)])
            submitted += CHUNK

    found: list[tuple[float, float]] = []
    moments = random.Random(1)
    async with Scheduler(place, domains=[domain]) as scheduler:
        await refill()
        async with scheduler.running():
            for _ in range(trials):
                if submitted - started < LEAST:
                    await refill()
                await asyncio.sleep(moments.uniform(*PAUSE))
                ran.clear()
                await urgent.submit()
                returned_at = time.perf_counter()
                await ran.wait()
                found.append((max(before_at - returned_at, 0.0) * 1000, max(urgent_at - returned_at, 0.0) * 1000))
    return found
