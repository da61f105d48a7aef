"""``io_gate_small_p99_ratio``: what the IO gate spares small urgent tasks while large ones write.

Large tasks of low priority write hundreds of megabytes each and force every part to the disk, as backups do. Small
urgent ones write a few kilobytes meanwhile and wait for the disk. Measured is how long these take from start to end,
with the gate against without, on the same disk and side by side; and how many bytes the large ones move per second.

What the disk sustains is measured before: one large task alone. That is given as ``capacity``, so that the sides differ
in nothing else from run to run.
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from pathlib import Path

from benchmarks.measuring import Report, Settings, Target, flush_to_disk, interleaved, median_ratio, percentile, summary
from taskmill import Domain, IoBudget, Priority, Resources, Scheduler

MEGABYTE = 1_000_000
PART = 4 * MEGABYTE
LARGE_TASKS = 8
SLOTS = LARGE_TASKS + 2
PAUSE = 0.02
"""Seconds between two small tasks."""

domain = Domain("io")
content = os.urandom(PART)
took: list[float] = []
"""Seconds that each small task took."""


def _write(file: Path, parts: int, size: int) -> None:
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    try:
        for _ in range(parts):
            os.write(descriptor, content[:size])
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
        file.unlink()


@domain.task(priority=Priority.LOW, io=lambda file, parts: IoBudget(disk_write=parts * PART))
def large(file: Path, parts: int) -> None:
    """Write much, part by part."""
    _write(file, parts, PART)


@domain.task(priority=Priority.HIGH)
def small(file: Path) -> None:
    """Write little, and wait for the disk."""
    began = time.perf_counter()
    _write(file, 1, 16_384)
    took.append(time.perf_counter() - began)


def measure(settings: Settings) -> Report:
    report = Report()
    parts = 25 if settings.quick else 60
    file = settings.new_file("alone")
    capacity = asyncio.run(_alone(file, parts))
    settings.discard(file)
    p99s: dict[str, list[float]] = {"gated": [], "ungated": []}
    sides = {
        "gated": partial(_run, settings, parts, p99s["gated"], capacity),
        "ungated": partial(_run, settings, parts, p99s["ungated"], None),
    }
    rates = interleaved(3, sides)
    report.about |= {
        "large_tasks": LARGE_TASKS,
        "megabytes_each": parts * PART / MEGABYTE,
        "alone_megabytes_per_s": round(capacity / MEGABYTE),
    }
    for name, found in rates.items():
        report.about[f"{name}_megabytes_per_s"] = summary([rate / MEGABYTE for rate in found])
        report.about[f"{name}_small_p99_ms"] = summary([seconds * 1000 for seconds in p99s[name]])
    report.add("io_gate_small_p99_ratio", median_ratio(p99s["gated"], p99s["ungated"]), Target("<=", 0.5))
    report.add("io_gate_throughput_ratio", median_ratio(rates["gated"], rates["ungated"]), Target(">=", 0.8))
    return report


async def _alone(file: Path, parts: int) -> float:
    """Bytes per second that one large task writes."""
    async with Scheduler(file, domains=[domain]) as scheduler, scheduler.running():
        began = time.perf_counter()
        await (await large.submit(file.parent / "alone", parts)).result()
        return parts * PART / (time.perf_counter() - began)


def _run(settings: Settings, parts: int, p99s: list[float], capacity: float | None) -> float:
    """Bytes per second that the large tasks moved; the p99 of the small ones is added to ``p99s``."""
    took.clear()
    file = settings.new_file("io")
    resources = None if capacity is None else Resources(capacity=IoBudget(disk_write=int(capacity)))
    flush_to_disk()
    seconds = asyncio.run(_work(file, parts, resources))
    settings.discard(file)
    p99s.append(percentile(took, 99))
    return LARGE_TASKS * parts * PART / seconds


async def _work(file: Path, parts: int, resources: Resources | None) -> float:
    async def disturb() -> None:
        number = 0
        while True:
            number += 1
            await small.submit(file.parent / f"small-{number}")
            await asyncio.sleep(PAUSE)

    async with (
        Scheduler(file, domains=[domain], max_concurrency=SLOTS, resources=resources) as scheduler,
        scheduler.running(),
    ):
        began = time.perf_counter()
        writing = [await large.submit(file.parent / f"large-{i}", parts) for i in range(LARGE_TASKS)]
        disturbing = asyncio.create_task(disturb())
        for handle in writing:
            await handle.result()
        seconds = time.perf_counter() - began
        disturbing.cancel()
    return seconds
