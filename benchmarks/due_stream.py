"""``due_stream_vs_none_200_groups``: rate of dispatch while tasks come due, over the rate while none do.

60,000 no-op tasks wait in 200 groups, and 20 others come due each second, spread over the groups. A task that comes due
is put into its place in its lane. No other lane should be read again for it, so the rate should be the same as without
such tasks. ``…_10k_groups`` is the same with 10,000 groups, ``retry_stream_vs_none_…`` with 20 tasks that fail each
second and are tried again after one. ``pg_…`` is the same on a PostgreSQL server of its own. All settings have their
defaults.

The clock runs from the first start of a no-op task for a fixed time. Tasks that have run are put back, so that every
round starts from the same depth.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

from benchmarks.measuring import Report, Settings, Target, flush_to_disk, interleaved, summary
from benchmarks.pg_server import bench_server, new_database
from taskmill import Domain, Priority, Retry, RetryLater, Scheduler, Submission

WAITING = 60_000
PER_SECOND = 20
SECONDS = 2.0
CHUNK = 5_000
TARGETS = {200: Target(">=", 0.8), 10_000: Target(">=", 0.7)}
"""Targets, by the number of groups."""


class Bench:
    """The task types of this measurement, and how many no-op tasks have started."""

    def __init__(self) -> None:
        self.domain = Domain("bench")
        self.started = self.others = 0
        self.begun = asyncio.Event()

        @self.domain.task
        async def noop(i: int) -> None:
            self.started += 1
            self.begun.set()

        @self.domain.task
        async def due(i: int) -> None:
            self.others += 1

        @self.domain.task(priority=Priority.HIGH, retry=Retry.constant(1_000, delay=1))
        async def flaky(i: int) -> None:
            self.others += 1
            raise RetryLater("not yet", after=1)


def measure(settings: Settings) -> Report:
    report = Report()
    for groups in TARGETS:
        file = settings.new_file("due")
        _measure(settings, report, str(file), groups, "")
        settings.discard(file)
    with bench_server() as server:
        for groups in TARGETS:
            _measure(settings, report, new_database(server), groups, "pg_")
    report.about |= {"waiting": _waiting(settings), "due_per_s": PER_SECOND, "seconds": SECONDS}
    return report


def _measure(settings: Settings, report: Report, place: str, groups: int, prefix: str) -> None:
    waiting = _waiting(settings)
    asyncio.run(_put_back(place, waiting, groups))
    sides = {name: partial(_dispatch, place, groups, name) for name in ("none", "due", "flaky")}
    rates = interleaved(settings.rounds, sides)
    suffix = f"{groups}_groups" if groups < 1_000 else f"{groups // 1_000}k_groups"
    for name, found in rates.items():
        report.about[f"{prefix}{name}_starts_per_s_{suffix}"] = summary(found)
    for name, number in (("due", "due_stream_vs_none"), ("flaky", "retry_stream_vs_none")):
        report.add_ratio(f"{prefix}{number}_{suffix}", rates[name], rates["none"], TARGETS[groups])


def _waiting(settings: Settings) -> int:
    return WAITING // (3 if settings.quick else 1)


def _dispatch(place: str, groups: int, stream: str) -> float:
    """Return the starts of no-op tasks per second."""

    async def run() -> tuple[float, int]:
        bench = Bench()
        async with Scheduler(place, domains=[bench.domain]) as scheduler:
            await scheduler.submit_many(_stream(stream, groups))
            async with scheduler.running():
                await bench.begun.wait()
                before, began = bench.started, time.perf_counter()
                await asyncio.sleep(SECONDS)
                rate = (bench.started - before) / (time.perf_counter() - began)
            if stream == "flaky" and not bench.others:
                raise AssertionError("nothing was tried again")
            for type in ("bench::due", "bench::flaky"):
                await scheduler.cancel_where(type=type)
        return rate, bench.started

    rate, started = asyncio.run(run())
    asyncio.run(_put_back(place, started, groups))
    return rate


def _stream(name: str, groups: int) -> list[Submission]:
    """Return the tasks that come due while the clock runs: one after the other, or the same ones each second."""
    if name == "none":
        return []
    count = PER_SECOND if name == "flaky" else int(PER_SECOND * (SECONDS + 1))
    return [
        Submission(
            f"bench::{name}", {"i": n}, group=_group(n * groups // count, groups), run_after=(n + 1) / PER_SECOND
        )
        for n in range(count)
    ]


async def _put_back(place: str, tasks: int, groups: int) -> None:
    bench = Bench()
    async with Scheduler(place, domains=[bench.domain]) as scheduler:
        for start in range(0, tasks, CHUNK):
            numbers = range(start, min(start + CHUNK, tasks))
            await scheduler.submit_many([Submission("bench::noop", {"i": n}, group=_group(n, groups)) for n in numbers])
    if Path(place).exists():
        flush_to_disk()


def _group(n: int, groups: int) -> str:
    return f"tenant-{n % groups}"
