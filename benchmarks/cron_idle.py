"""``cron_10k_initialize_s`` and ``cron_10k_idle_ms_per_min``: what 10,000 declared cron tasks cost.

A ``CronScheduler`` on a file is initialized with them, first without and then with stored state; the slower one counts.
Then nothing is due for a while, and the processor time of that while is scaled to a minute. The median of three such
times counts: the system may swap out an idle process and then charge it for swapping in. This part uses a queue in
memory, because on a file the check for other processes, five times a second, takes 50 to 100 ms per minute with or
without cron, which hides the cost of cron. ``about`` has the times on a file, with cron tasks and without.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import datetime
from functools import partial
from pathlib import Path

from benchmarks.measuring import Report, Settings, Target, interleaved, summary
from taskmill.cron import CronScheduler
from taskmill.model.cron import CronTuple

TASKS = 10_000


def measure(settings: Settings) -> Report:
    report = Report()
    file = settings.new_file("cron")
    initialized = [asyncio.run(_initialize(file)) for _ in range(3)]
    report.about["initialize_s"] = {"first": initialized[0], "again": initialized[1:]}
    report.add("cron_10k_initialize_s", max(initialized), Target("<=", 2))
    # Long enough for the loop to wake up by itself.
    seconds = 35 if settings.quick else 65
    idle = [_idle(":memory:", TASKS, seconds) for _ in range(1 if settings.quick else 3)]
    report.about["idle_ms_per_min"] = summary(idle)
    report.add("cron_10k_idle_ms_per_min", statistics.median(idle), Target("<=", 5))
    empty = settings.new_file("no-cron")
    sides = {"cron": partial(_idle, file, TASKS, 10), "without": partial(_idle, empty, 0, 10)}
    for name, found in interleaved(2, sides).items():
        report.about[f"file_{name}_ms_per_min"] = summary(found)
    report.about |= {"tasks": TASKS, "seconds": seconds}
    settings.discard(file)
    settings.discard(empty)
    return report


async def _initialize(file: Path) -> float:
    registrations = _registrations(TASKS)
    cron = CronScheduler(file)
    began = time.perf_counter()
    await cron.initialize(registrations)
    took = time.perf_counter() - began
    await cron.stop()
    return took


def _idle(file: Path | str, tasks: int, seconds: float) -> float:
    """Return the milliseconds of processor time per minute in which nothing is due."""
    return asyncio.run(_wait(file, tasks, seconds))


async def _wait(file: Path | str, tasks: int, seconds: float) -> float:
    cron = CronScheduler(file)
    await cron.initialize(_registrations(tasks))
    # By then the checks for other processes have become rare.
    await asyncio.sleep(3)
    began = time.process_time()
    await asyncio.sleep(seconds)
    used = time.process_time() - began
    await cron.stop()
    return used * 1000 * 60 / seconds


def _registrations(count: int) -> list[CronTuple]:
    """Return cron tasks, spread over the minutes of a distant month."""
    month = (datetime.now().astimezone().month + 5) % 12 + 1
    return [(f"task {n}", f"{n % 60} {n // 60 % 24} {n % 28 + 1} {month} *", _nothing, 60.0) for n in range(count)]


async def _nothing() -> None: ...
