"""``pg_depth_1m_vs_1k``: time per dispatched task on PostgreSQL with 1,000,000 waiting, over the same with 1,000.

As in :mod:`benchmarks.depth`, both sides dispatch the same number of tasks with the same settings, and the clock runs
from the start of the first handler to the start of the last. There are 100 slots, so that the server's work weighs more
than the disk. Tasks are stored by the server itself, before the clock runs and again after each round, so that every
round starts from the same depth.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from tests.postgres.keeper import Server

from benchmarks.measuring import Report, Settings, Target, interleaved, summary
from benchmarks.pg_backlog import deep_database, fill_up
from benchmarks.pg_server import bench_server, settle
from benchmarks.workload import countdown_domain
from taskmill import Scheduler

DISPATCHED = 1_000
SLOTS = 100


def measure(settings: Settings) -> Report:
    report = Report()
    with bench_server() as server:
        deep, shallow = deep_database(server, settings.backlog), deep_database(server, DISPATCHED)
        times = interleaved(
            2 * settings.rounds + 1,
            {
                "deep": partial(_dispatch, server, deep, settings.backlog),
                "shallow": partial(_dispatch, server, shallow, DISPATCHED),
            },
        )
    for name, found in times.items():
        report.about[f"{name}_us_per_task"] = summary([seconds * 1e6 for seconds in found])
    report.about |= {"dispatched": DISPATCHED, "deep": settings.backlog, "max_concurrency": SLOTS}
    report.add_ratio("pg_depth_1m_vs_1k", times["deep"], times["shallow"], Target("<=", 1.5))
    return report


def _dispatch(server: Server, address: str, waiting: int) -> float:
    """Return the seconds per task over ``DISPATCHED`` tasks."""
    moments: list[float] = []

    async def run() -> None:
        domain, reached = countdown_domain(DISPATCHED, lambda _: moments.append(time.perf_counter()))
        async with Scheduler(address, domains=[domain], max_concurrency=SLOTS) as scheduler, scheduler.running():
            await reached.wait()

    settle(server)
    asyncio.run(run())
    fill_up(address, waiting)
    return (moments[-1] - moments[0]) / (len(moments) - 1)
