"""``resume_longest_gap_ms``: the longest time between two starts in one group while another is resumed.

1,000,000 tasks with a time-to-live wait in a paused group, on PostgreSQL 100,000. Resuming it gives the paused time
back to each of them; meanwhile four handlers of another group, 10 ms each, follow one another. ``resume_ms`` is how
long the call of ``resume`` takes, ``resume_given_back_s`` how long until the last task has its time back.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import time
from pathlib import Path

import psycopg

from benchmarks.measuring import Report, Settings, Target, flush_to_disk
from benchmarks.pg_server import bench_server, new_database, settle
from taskmill import Domain, Group, Scheduler

CHUNK = 10_000
WORK = 40_000
"""More tasks than start in the other group meanwhile."""
LONGEST_GAP = Target("<=", 100)


def measure(settings: Settings) -> Report:
    report = Report()
    file = settings.new_file("resume")
    _measure(report, str(file), settings.backlog, "")
    settings.discard(file)
    with bench_server() as server:
        place = new_database(server)
        _measure(report, place, settings.backlog // 10, "pg_")
        settle(server)
    return report


def _measure(report: Report, place: str, paused: int, prefix: str) -> None:
    gap, call, whole = asyncio.run(_resume(place, paused))
    report.about[f"{prefix}paused"] = paused
    report.add(f"{prefix}resume_longest_gap_ms", gap * 1000, LONGEST_GAP)
    report.add(f"{prefix}resume_ms", call * 1000)
    report.add(f"{prefix}resume_given_back_s", whole)


async def _resume(place: str, paused: int) -> tuple[float, float, float]:
    """Return the longest gap, the duration of the call, and the time until all tasks have their time back."""
    domain = Domain("bench")
    starts: list[float] = []

    @domain.task(group="paused", ttl=3600)
    async def held(i: int) -> None:
        """Do nothing."""

    @domain.task(group="other")
    async def work(i: int) -> None:
        starts.append(time.perf_counter())
        await asyncio.sleep(0.01)

    groups = {"paused": Group(cap=1), "other": Group(cap=4)}
    async with Scheduler(place, domains=[domain], groups=groups, retention=None) as scheduler:
        await scheduler.group("paused").pause()
        for start in range(0, paused, CHUNK):
            await scheduler.submit_many([held.prepare(i) for i in range(start, min(start + CHUNK, paused))])
        for start in range(0, WORK, CHUNK):
            await scheduler.submit_many([work.prepare(i) for i in range(start, start + CHUNK)])
        flush_to_disk()
        async with scheduler.running():
            await asyncio.sleep(2)
            began = time.perf_counter()
            await scheduler.group("paused").resume()
            call = time.perf_counter() - began
            while _is_owed(place):
                await asyncio.sleep(0.05)
            whole = time.perf_counter() - began
            await asyncio.sleep(0.2)
    seen = [at for at in starts if began - 0.2 <= at]
    if len(seen) < 10 or len(starts) >= WORK:
        raise AssertionError(f"{len(starts)} of {WORK} tasks of the other group started")
    return max(later - earlier for earlier, later in itertools.pairwise(seen)), call, whole


def _is_owed(place: str) -> bool:
    """True if some tasks do not have their time back yet."""
    asked = "SELECT EXISTS (SELECT 1 FROM taskmill_ended_pause)"
    if Path(place).exists():
        connection = sqlite3.connect(place, timeout=60)
        try:
            return bool(connection.execute(asked).fetchone()[0])
        finally:
            connection.close()
    with psycopg.connect(place, autocommit=True) as server:
        row = server.execute(asked).fetchone()
        return row is not None and bool(row[0])
