"""``pg_latency_p50_ms``, ``pg_latency_p99_ms``: from ``submit`` to the start of the handler in another process.

The cluster is idle: one node, in a process of its own, and this process, which only submits. One task at a time, each
after the one before has ended. The time includes two commits, the submission's and the claim's, and the notification by
which the node learns of the task.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.measuring import Report, Settings, Target, percentile, significant, spread
from benchmarks.pg_node import Node, domain, moment
from benchmarks.pg_server import bench_server, new_database
from taskmill import Scheduler

PAUSE = 0.05
"""Longer than the interval between notifications, so that each task finds an idle cluster."""


def measure(settings: Settings) -> Report:
    with bench_server() as server:
        submitted, started = asyncio.run(_sample(new_database(server), settings.samples // 2))
    report = Report()
    report.add("pg_latency_p50_ms", percentile(started, 50), Target("<", 10))
    report.add("pg_latency_p99_ms", percentile(started, 99))
    for percent in (50, 99):
        report.about[f"submit_returns_p{percent}_ms"] = significant(percentile(submitted, percent))
    report.about |= {"started_ms": spread(started), "samples": settings.samples // 2}
    return report


async def _sample(address: str, samples: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds until ``submit`` returned, and until the handler started."""
    submitted: list[float] = []
    started: list[float] = []
    async with Scheduler(address, domains=[domain]):
        node = Node(address, 8)
        try:
            node.wait_until_ready()
            node.begin()
            for _ in range(samples):
                await asyncio.sleep(PAUSE)
                began_at = time.monotonic()
                handle = await moment.submit()
                submitted.append((time.monotonic() - began_at) * 1000)
                started.append((await handle.result() - began_at) * 1000)
            node.end()
        finally:
            node.kill()
    return submitted, started
