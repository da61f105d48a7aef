"""``progress_report_us``: what a handler pays for a report of progress, and how many of them are written.

One task reports a million times, in each of the possible ways; the slowest way counts. Handlers on the loop and in a
thread are measured. Writes to the file are counted by the events that announce them, one per write.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator

from benchmarks.measuring import Report, Settings, Target, summary
from taskmill import Context, Domain, Scheduler
from taskmill.events import Event, TaskProgressed

MOST_WRITES = 50
"""A handful for each second of the run."""

CHUNK = 10_000
"""Reports that are timed together; the median of the chunks counts."""

domain = Domain("progress")
microseconds: dict[str, float] = {}


def _report(ctx: Context, way: str, reports: int) -> None:
    progress = ctx.progress
    progress.bytes(reports)
    chunks: list[float] = []
    for start in range(0, reports, CHUNK):
        numbers = range(start, start + CHUNK)
        began = time.perf_counter()
        if way == "fraction":
            for i in numbers:
                progress(i / reports)
        elif way == "counts":
            for i in numbers:
                progress.of(i, reports)
        else:
            for _ in numbers:
                progress.advance(1)
        chunks.append(time.perf_counter() - began)
    microseconds[way] = max(microseconds.get(way, 0.0), statistics.median(chunks) / CHUNK * 1_000_000)


@domain.task
async def on_loop(ctx: Context, way: str, reports: int) -> None:
    """Report from the event loop."""
    _report(ctx, way, reports)


@domain.task
def in_thread(ctx: Context, way: str, reports: int) -> None:
    """Report from a thread."""
    _report(ctx, way, reports)


def measure(settings: Settings) -> Report:
    report = Report()
    reports = 100_000 if settings.quick else 1_000_000
    microseconds.clear()
    file = settings.new_file("progress")
    writes = asyncio.run(_measure(str(file), reports))
    settings.discard(file)
    report.about |= {"reports": reports, "microseconds": summary(list(microseconds.values())), "ways": [*microseconds]}
    report.add("progress_report_us", max(microseconds.values()), Target("<", 2))
    report.add("progress_writes_per_task", max(writes), Target("<=", MOST_WRITES))
    return report


async def _measure(file: str, reports: int) -> list[int]:
    writes: list[int] = []

    async def count(listener: AsyncIterator[Event]) -> int:
        return len([event async for event in listener])

    async with Scheduler(file, domains=[domain]) as scheduler, scheduler.running():
        for task in (on_loop, in_thread):
            for way in ("fraction", "counts", "bytes"):
                listener = scheduler.events(TaskProgressed)
                counting = asyncio.create_task(count(listener))
                handle = await task.submit(way, reports)
                await handle.result()
                await listener.aclose()
                writes.append(await counting)
    return writes
