"""``dispatch_during_sweep``: rate of dispatch while 50,000 of 200,000 waiting tasks expire, over the rate without.

The stale tasks were submitted before the others and are in front of them in the queue, as after a night without a
dispatcher: all of their deadlines have passed when dispatching starts. The clock runs from then until the last of them
is in history; beside it no-op tasks of another group are dispatched, and their rate counts. The other side has only the
other 150,000 tasks, and works on them for a fixed time. Both run with the defaults and with a caller that waits for the
end of one task. ``sweep_s`` is how long the sweep takes beside that work, ``sweep_alone_s`` when there is nothing else
to do; no turn of it may wait for a timer, so neither depends on one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from pathlib import Path

from benchmarks.backlog import copy_of
from benchmarks.measuring import Report, Settings, Target, flush_to_disk, interleaved, summary
from taskmill import Domain, Scheduler

WORK = 150_000
STALE = 50_000
CHUNK = 5_000
TTL = 0.001
SECONDS = 2.0
"""Seconds that the side without a sweep works."""


class Bench:
    """The task types of this measurement, and how many of the other tasks have started."""

    def __init__(self) -> None:
        self.domain = Domain("sweep")
        self.started = 0

        @self.domain.task(group="stale", ttl=TTL)
        async def stale(i: int) -> None:
            raise AssertionError("it was started after its deadline")

        @self.domain.task(group="work")
        async def work(i: int) -> None:
            self.started += 1

        self.stale, self.work = stale, work


def measure(settings: Settings) -> Report:
    work, stale = (WORK // 10, STALE // 10) if settings.quick else (WORK, STALE)
    files = {
        "sweep": _filled(settings, stale=stale, work=work),
        "alone": _filled(settings, stale=stale, work=0),
        "calm": _filled(settings, stale=0, work=work),
    }
    seconds: dict[str, list[float]] = {"sweep": [], "alone": []}

    def swept(side: str) -> float:
        rate, took = asyncio.run(_sweep(copy := copy_of(files[side], settings), stale))
        settings.discard(copy)
        seconds[side].append(took)
        return rate

    def calm() -> float:
        rate = asyncio.run(_calm(copy := copy_of(files["calm"], settings)))
        settings.discard(copy)
        return rate

    rates = interleaved(
        settings.rounds, {"sweep": partial(swept, "sweep"), "calm": calm, "alone": partial(swept, "alone")}
    )
    for file in files.values():
        settings.discard(file)
    report = Report()
    report.about |= {"waiting": work + stale, "stale": stale}
    report.about |= {f"{name}_starts_per_s": summary(rates[name]) for name in ("sweep", "calm")}
    report.about |= {f"{name}_s": summary(found) for name, found in seconds.items()}
    report.add_ratio("dispatch_during_sweep", rates["sweep"], rates["calm"], Target(">=", 0.5))
    report.add("sweep_s", report.about["sweep_s"]["median"])
    report.add("sweep_alone_s", report.about["alone_s"]["median"])
    return report


def _filled(settings: Settings, *, stale: int, work: int) -> Path:
    """Return a file with tasks that have expired and tasks that have not."""
    file = settings.new_file("waiting")
    bench = Bench()

    async def fill() -> None:
        async with Scheduler(file, domains=[bench.domain]) as scheduler:
            for task, count in ((bench.stale, stale), (bench.work, work)):
                for start in range(0, count, CHUNK):
                    await scheduler.submit_many([task.prepare(i) for i in range(start, min(start + CHUNK, count))])

    asyncio.run(fill())
    flush_to_disk()
    return file


async def _sweep(file: Path, stale: int) -> tuple[float, float]:
    """Return the starts of other tasks per second until all stale tasks are in history, and the seconds until then."""
    bench = Bench()
    async with Scheduler(file, domains=[bench.domain]) as scheduler:
        async with scheduler.running():
            began = time.perf_counter()
            # Deadlines are swept in their order, and ids are assigned from 1: this task is the last.
            await scheduler.wait(stale)
            took = time.perf_counter() - began
            started = bench.started
        ended = (await scheduler.stats("sweep::stale")).count
        if ended != stale:
            raise AssertionError(f"{ended} of {stale} stale tasks have expired")
    return started / took, took


async def _calm(file: Path) -> float:
    """Return the starts per second."""
    bench = Bench()
    async with Scheduler(file, domains=[bench.domain]) as scheduler:
        never = await bench.work.options(run_after=3600).submit(-1)
        async with scheduler.running():
            began = time.perf_counter()
            with contextlib.suppress(TimeoutError):
                await never.wait(timeout=SECONDS)
            return bench.started / (time.perf_counter() - began)
