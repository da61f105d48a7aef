"""``submit_p99_busy_ms``: how long a durable ``await task.submit()`` takes while handlers keep the event loop
busy.

Eight handlers burn the CPU on the loop in slices of 0.5 ms and yield between them; when one ends, the next is
started. So one turn of the loop lasts at least 4 ms, and a submit needs several. The samples are of a type
that never gets a slot meanwhile, one at a time with a short pause. ``busy_handler_share`` is the part of the
wall time in which handlers ran; it would be 1 if the scheduler cost nothing. ``about`` has the same with
handlers of a single slice, where every 0.5 ms of work pays for a whole task.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.measuring import Report, Settings, Target, percentile, significant
from taskmill import Domain, Priority, Scheduler

SLICE = 0.0005
SLICES = 20
PAUSE = 0.002
REFILL = 2_000


def measure(settings: Settings) -> Report:
    report = Report()
    waits, share, tasks_per_s = asyncio.run(_sample(settings, SLICES))
    report.add("submit_p99_busy_ms", percentile(waits, 99), Target("<=", 50))
    report.add("submit_p50_busy_ms", percentile(waits, 50))
    report.add("busy_handler_share", share)
    report.about |= {"samples": settings.samples, "slices_per_handler": SLICES, "handlers_per_s": tasks_per_s}
    waits, share, tasks_per_s = asyncio.run(_sample(settings, 1))
    report.about["handlers_of_one_slice"] = {
        "submit_p50_ms": significant(percentile(waits, 50)),
        "submit_p99_ms": significant(percentile(waits, 99)),
        "handler_share": significant(share),
        "handlers_per_s": tasks_per_s,
    }
    return report


async def _sample(settings: Settings, slices: int) -> tuple[list[float], float, float]:
    """Return the milliseconds of each submit, the share of time that handlers used, and how many ended per second."""
    domain = Domain("bench")
    burned = ended = 0

    @domain.task
    async def burn(i: int) -> None:
        nonlocal burned, ended
        for _ in range(slices):
            until = time.perf_counter() + SLICE
            while time.perf_counter() < until:
                pass
            burned += 1
            await asyncio.sleep(0)
        ended += 1

    @domain.task(priority=Priority.IDLE)
    async def sampled(i: int) -> None:
        """Wait behind all burning tasks."""

    waits: list[float] = []
    file = settings.new_file("busy")
    async with Scheduler(file, domains=[domain], max_concurrency=8, shutdown_grace=1) as scheduler:
        await scheduler.submit_many([burn.prepare(i) for i in range(REFILL)])
        waiting = REFILL
        async with scheduler.running():
            await asyncio.sleep(0.2)
            burned_before, ended_before, began = burned, ended, time.perf_counter()
            for i in range(settings.samples):
                if waiting - ended < REFILL // 2:
                    await scheduler.submit_many([burn.prepare(i) for i in range(REFILL)])
                    waiting += REFILL
                asked = time.perf_counter()
                await sampled.submit(i)
                waits.append((time.perf_counter() - asked) * 1000)
                await asyncio.sleep(PAUSE)
            took = time.perf_counter() - began
            share = (burned - burned_before) * SLICE / took
            rate = (ended - ended_before) / took
        if not await scheduler.count(type=burn.name, status="pending"):
            raise AssertionError("the handlers ran out of work before the samples were taken")
    settings.discard(file)
    return waits, share, significant(rate)
