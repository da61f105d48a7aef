"""``simulate_100k_s``: how long one simulated run of 100,000 waiting tasks takes, and what dispatching them costs.

The queue has 10 groups and 3 priorities on 16 slots. The ratio compares a simulated start with the dispatch of a task
that does nothing, on a queue in memory: ``simulate_to_dispatch``.
"""

from __future__ import annotations

import asyncio
import statistics
import time

from benchmarks.measuring import Report, Settings, Target, summary
from taskmill import Domain, Scheduler

TASKS = 100_000
DISPATCHED = 10_000
GROUPS, PRIORITIES = 10, (64, 128, 192)

domain = Domain("simulated")


@domain.task
async def nothing() -> None: ...


def measure(settings: Settings) -> Report:
    report = Report()
    simulated = [asyncio.run(_simulate()) for _ in range(settings.rounds)]
    dispatched = [asyncio.run(_dispatch()) for _ in range(settings.rounds)]
    seconds = statistics.median(simulated)
    report.add("simulate_100k_s", seconds, Target("<=", 10))
    report.add("simulate_to_dispatch", (seconds / TASKS) / (statistics.median(dispatched) / DISPATCHED), None)
    report.about |= {"simulated_s": summary(simulated), "dispatched_10k_s": summary(dispatched), "tasks": TASKS}
    return report


async def _fill(scheduler: Scheduler, count: int) -> None:
    await scheduler.submit_many(
        [
            nothing.options(group=f"g{n % GROUPS}", priority=PRIORITIES[n % len(PRIORITIES)]).prepare()
            for n in range(count)
        ]
    )


async def _simulate() -> float:
    """Return the CPU time of one of the two runs of a simulation, with half of the reading."""
    async with Scheduler(domains=[domain], max_concurrency=16) as scheduler:
        await _fill(scheduler, TASKS)
        began = time.process_time()
        await scheduler.simulate({}, seed=1)
        return (time.process_time() - began) / 2


async def _dispatch() -> float:
    async with Scheduler(domains=[domain], max_concurrency=16) as scheduler:
        await _fill(scheduler, DISPATCHED)
        began = time.process_time()
        await scheduler.run_until_idle()
        return time.process_time() - began
