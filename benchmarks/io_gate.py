"""``io_gate_small_p99_ratio``: how much the IO gate shortens small urgent tasks while large ones write.

Sixteen large tasks of low priority write hundreds of megabytes each and force every part to the disk, as backups do.
Small urgent ones write a few kilobytes meanwhile and wait for the disk. The benchmark measures how long these take from
start to end, with the gate and without it, alternately on the same disk, and how many bytes the large ones move per
second.

The capacity of the disk is not configured but learned: in a run before, all large tasks write at once, without budgets,
while psutil watches. The learned capacity is then read from the file, as after a restart. A large task writes as much
as the disk moves in half a second, so that the gate lets three of them run at once.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from functools import partial
from pathlib import Path

from benchmarks.measuring import (
    Report,
    Settings,
    Target,
    flush_to_disk,
    interleaved,
    percentile,
    significant,
    summary,
)
from taskmill import Domain, IoBudget, Priority, Scheduler

MEGABYTE = 1_000_000
PART = 64 * MEGABYTE
LARGE_TASKS = 16
SECONDS_EACH = 0.5
CALLERS = 4
"""Number of callers that submit small tasks, one after the other."""
SLOTS = LARGE_TASKS + CALLERS
PAUSE = 0.01
"""Seconds between two submits of a caller."""

domain = Domain("io")
content = os.urandom(PART)
took: list[float] = []
"""Seconds that each small task of a run took."""


def _write(file: Path, parts: int, size: int) -> None:
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY)
    try:
        for _ in range(parts):
            os.write(descriptor, content[:size])
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


@domain.task(priority=Priority.LOW, io=lambda file, parts: IoBudget(disk_write=parts * PART))
def large(file: Path, parts: int) -> None:
    """Write many bytes, part by part."""
    _write(file, parts, PART)


@domain.task(priority=Priority.HIGH)
def small(file: Path) -> None:
    """Write few bytes, and wait for the disk."""
    began = time.perf_counter()
    _write(file, 1, 16_384)
    took.append(time.perf_counter() - began)


def measure(settings: Settings) -> Report:
    report = Report()
    file = settings.new_file("io")
    learned = asyncio.run(_learn(file, 3 if settings.quick else 6))
    parts = max(round(learned * SECONDS_EACH / PART), 3)
    all_took: dict[str, list[float]] = {"gated": [], "ungated": []}
    sides = {name: partial(_run, file, parts, all_took[name], gated=name == "gated") for name in all_took}
    rates = interleaved(3 if settings.quick else 5, sides)
    settings.discard(file)
    report.about |= {
        "large_tasks": LARGE_TASKS,
        "megabytes_each": parts * PART / MEGABYTE,
        "learned_megabytes_per_s": round(learned / MEGABYTE),
    }
    for name, found in rates.items():
        report.about[f"{name}_megabytes_per_s"] = summary([rate / MEGABYTE for rate in found])
        report.about[f"{name}_small_tasks"] = len(all_took[name])
        report.about[f"{name}_small_p99_ms"] = significant(percentile(all_took[name], 99) * 1000)
    # Percentile over all rounds together: one percent of the tasks of one round is too few.
    ratio = percentile(all_took["gated"], 99) / percentile(all_took["ungated"], 99)
    report.add("io_gate_small_p99_ratio", ratio, Target("<=", 0.5))
    report.add_ratio("io_gate_throughput_ratio", rates["gated"], rates["ungated"], Target(">=", 0.8))
    return report


async def _learn(file: Path, parts: int) -> float:
    """Let a scheduler measure what the disk sustains; return that, in bytes per second."""
    folder = _new_folder(file)
    seeing = Scheduler(file, domains=[domain], max_concurrency=LARGE_TASKS, resources=True)
    async with seeing as scheduler, scheduler.running():
        writing = [await large.options(io=None).submit(folder / str(i), parts) for i in range(LARGE_TASKS)]
        for handle in writing:
            await handle.result()
    shutil.rmtree(folder)
    async with Scheduler(file, domains=[domain]) as scheduler:
        seen = await scheduler._store.machine()
    if seen is None or not seen.known.disk_write:
        raise AssertionError("nothing was learned about the disk")
    return seen.known.disk_write


def _run(file: Path, parts: int, all_took: list[float], *, gated: bool) -> float:
    """Return the bytes per second of the large tasks; add the durations of the small ones to ``all_took``."""
    took.clear()
    folder = _new_folder(file)
    flush_to_disk()
    seconds = asyncio.run(_work(file, folder, parts, watched=gated))
    shutil.rmtree(folder)
    all_took += took
    return LARGE_TASKS * parts * PART / seconds


def _new_folder(file: Path) -> Path:
    folder = file.parent / "written"
    folder.mkdir()
    return folder


async def _work(file: Path, folder: Path, parts: int, *, watched: bool) -> float:
    async def disturb(caller: int) -> None:
        number = 0
        while True:
            number += 1
            await small.submit(folder / f"small-{caller}-{number}")
            await asyncio.sleep(PAUSE)

    scheduler = Scheduler(file, domains=[domain], max_concurrency=SLOTS, resources=watched)
    async with scheduler, scheduler.running():
        began = time.perf_counter()
        writing = [await large.submit(folder / f"large-{i}", parts) for i in range(LARGE_TASKS)]
        disturbing = [asyncio.create_task(disturb(caller)) for caller in range(CALLERS)]
        for handle in writing:
            await handle.result()
        seconds = time.perf_counter() - began
        for each in disturbing:
            each.cancel()
    return seconds
