"""``keyed_1m_vs_10k``: how long a keyed submit takes with 1,000,000 stored keys, over the same with 10,000.

Every submit has a new key, in batches of 1,000, into copies of the two files. Ordered keys (``order-17``) fill one page
of the index after the other. With random keys (``…_random``) each submit writes a different page of the index when the
index is large: that is the cost of an index, not of the queue, so it has no target.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.backlog import copy_of
from benchmarks.measuring import Report, Settings, Target, flush_to_disk, interleaved, median_ratio, summary
from taskmill import Domain, Scheduler

SHALLOW = 10_000
BATCH = 1_000
FILLING = 10_000
"""Tasks per ``submit_many`` while a file is filled."""

domain = Domain("keyed")
Keys = Callable[[int], list[str]]


@domain.task(key=lambda key: key)
async def once(key: str) -> None:
    """Do nothing."""


def measure(settings: Settings) -> Report:
    report = Report()
    report.about |= {"deep": settings.backlog, "shallow": SHALLOW, "submits": settings.tasks, "batch": BATCH}
    for suffix, keys in (("", _ordered()), ("_random", _random)):
        files = {"deep": settings.new_file("deep"), "shallow": settings.new_file("shallow")}
        for name, tasks in (("deep", settings.backlog), ("shallow", SHALLOW)):
            asyncio.run(_submit(files[name], tasks, FILLING, keys))
        sides = {name: partial(_time_per_task, settings, file, keys) for name, file in files.items()}
        times = interleaved(settings.rounds, sides)
        for name, found in times.items():
            report.about[f"{name}{suffix}_us_per_task"] = summary(found)
            settings.discard(files[name])
        ratio = median_ratio(times["deep"], times["shallow"])
        report.add(f"keyed_1m_vs_10k{suffix}", ratio, None if suffix else Target("<=", 1.3))
    return report


def _ordered() -> Keys:
    last = 0

    def keys(count: int) -> list[str]:
        nonlocal last
        last += count
        return [f"order-{number:09}" for number in range(last - count, last)]

    return keys


def _random(count: int) -> list[str]:
    return [f"{random.getrandbits(64):016x}" for _ in range(count)]


def _time_per_task(settings: Settings, file: Path, keys: Keys) -> float:
    """Return the microseconds per task."""
    copy = copy_of(file, settings)
    took = asyncio.run(_submit(copy, settings.tasks, BATCH, keys))
    settings.discard(copy)
    flush_to_disk()
    return took / settings.tasks * 1e6


async def _submit(file: Path, tasks: int, batch: int, keys: Keys) -> float:
    """Return the seconds that the submits took."""
    async with Scheduler(file, domains=[domain]) as scheduler:
        began = time.perf_counter()
        for _ in range(tasks // batch):
            await scheduler.submit_many([once.prepare(key) for key in keys(batch)])
        return time.perf_counter() - began
