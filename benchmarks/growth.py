"""How cost grows with the number of waiting tasks: one file that is filled step by step, from 1,000 to 10,000,000.

At each depth it measures the time per dispatched task, one durable submit, ``snapshot``, the time from opening the file
to the first handler, and the size of the file. There are 100 groups. No number has a target: the numbers make the table
of :file:`docs/explanation/speed.md`. It takes some minutes and two gigabytes, so it runs only if it is asked for by
name.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.backlog import CHUNK, size_mb
from benchmarks.measuring import Report, Settings, flush_to_disk, significant
from benchmarks.workload import countdown_domain, domain, fill, noop
from taskmill import Scheduler

GROUPS = 100
DISPATCHED = 1_000
ASKED = 9
"""How often each call is made, after one that does not count; the median is shown."""


def measure(settings: Settings) -> Report:
    report = Report()
    file = settings.new_file("growth")
    steps = [1_000, 10_000, 100_000] if settings.quick else [1_000, 10_000, 100_000, 1_000_000, 10_000_000]
    for waiting in steps:
        asyncio.run(_fill_up_to(file, waiting))
        found = asyncio.run(_measure(file, waiting))
        report.about[f"{waiting}"] = {name: significant(value) for name, value in found.items()}
        print(f"  {waiting:>10,}: " + ", ".join(f"{name} {value:.4g}" for name, value in found.items()), flush=True)
    settings.discard(file)
    return report


async def _fill_up_to(file: Path, waiting: int) -> None:
    async with Scheduler(file, domains=[domain]) as scheduler:
        missing = waiting - await scheduler.count(status="pending")
        await fill(scheduler, missing, CHUNK, GROUPS)
    flush_to_disk()


async def _measure(file: Path, waiting: int) -> dict[str, float]:
    moments: list[float] = []
    counted, reached = countdown_domain(DISPATCHED, lambda _: moments.append(time.perf_counter()))
    opened = time.perf_counter()
    async with Scheduler(file, domains=[counted]) as scheduler:
        async with scheduler.running():
            await reached.wait()
        await fill(scheduler, waiting - await scheduler.count(status="pending"), CHUNK, GROUPS)
    flush_to_disk()
    async with Scheduler(file, domains=[domain]) as scheduler:
        submit = await _median_ms(lambda: noop.submit(0))
        snapshot = await _median_ms(scheduler.snapshot)
    return {
        "dispatch_us": (moments[-1] - moments[0]) / (len(moments) - 1) * 1e6,
        "first_handler_ms": (moments[0] - opened) * 1000,
        "submit_ms": submit,
        "snapshot_ms": snapshot,
        "file_mb": size_mb(file),
    }


async def _median_ms(call: Callable[[], Awaitable[object]]) -> float:
    took: list[float] = []
    for _ in range(ASKED + 1):
        began = time.perf_counter()
        await call()
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took[1:])
