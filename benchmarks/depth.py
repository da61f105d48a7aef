"""``depth_1m_vs_1k``: time per dispatched task with 1,000,000 waiting, over the same with 1,000 waiting.

Both sides dispatch the same number of tasks with the same settings (the defaults) on the same disk; the clock
runs from the start of the first handler to the start of the last, so neither opening nor submitting counts.
Afterwards as many tasks are put back as were taken, so that every round starts from the same depth.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

from benchmarks.backlog import deep_file, fill_file
from benchmarks.measuring import Report, Settings, Target, flush_to_disk, interleaved, summary
from benchmarks.workload import countdown_domain, fill
from taskmill import Scheduler

DISPATCHED = 1_000


def measure(settings: Settings) -> Report:
    deep = deep_file(settings)
    shallow = settings.new_file("shallow")
    fill_file(shallow, DISPATCHED)
    times = interleaved(
        settings.rounds + 2,
        {"deep": partial(_dispatch, deep, settings.backlog), "shallow": partial(_dispatch, shallow, DISPATCHED)},
    )
    settings.discard(shallow)
    report = Report()
    for name, found in times.items():
        report.about[f"{name}_us_per_task"] = summary([seconds * 1e6 for seconds in found])
    report.about |= {"dispatched": DISPATCHED, "deep": settings.backlog, "shallow": DISPATCHED}
    report.add_ratio("depth_1m_vs_1k", times["deep"], times["shallow"], Target("<=", 1.5))
    return report


def _dispatch(file: Path, waiting: int) -> float:
    """Return the seconds per task over ``DISPATCHED`` tasks."""
    moments: list[float] = []

    async def run() -> None:
        domain, reached = countdown_domain(DISPATCHED, lambda _: moments.append(time.perf_counter()))
        async with Scheduler(file, domains=[domain]) as scheduler:
            async with scheduler.running():
                await reached.wait()
            await fill(scheduler, waiting - await scheduler.count(status="pending"))

    asyncio.run(run())
    flush_to_disk()
    return (moments[-1] - moments[0]) / (len(moments) - 1)
