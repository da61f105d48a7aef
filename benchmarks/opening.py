"""``open_1m_s`` and ``open_10k_groups_s``: opening a file with 1,000,000 waiting tasks, in a fresh process.

Four ways: as it was closed, with the system's cache of the file dropped, after a dispatcher with running
tasks was killed with SIGKILL, and after such a kill with the cache dropped. The number is the worst of all.
The clock runs from ``Scheduler.open()`` to the start of the first handler: it includes recovery and the first read of
the queue, but not importing Python modules. ``open_10k_groups_s`` is the median of several openings of
a file as it was closed, whose tasks are in 10,000 groups.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

from benchmarks.backlog import copy_of, deep_file, grouped_file
from benchmarks.measuring import (
    ROOT,
    Report,
    Settings,
    Target,
    child_environment,
    flush_to_disk,
    run_child,
    significant,
    summary,
)
from benchmarks.workload import countdown_domain
from taskmill import Domain, Scheduler

RUNNING_WHEN_KILLED = 100
GROUPS = 10_000


def measure(settings: Settings) -> Report:
    report = Report()
    worst = 0.0
    file = copy_of(deep_file(settings), settings)
    for way in ("closed", "closed_cold", "killed", "killed_cold"):
        if way.startswith("killed"):
            _kill_while_running(file)
        if way.endswith("cold"):
            _drop_cache(file)
        opened, started = map(float, run_child(["-m", "benchmarks.opening", "open", str(file)]).split())
        report.about[way] = {"open_s": significant(opened), "first_handler_s": significant(started)}
        worst = max(worst, opened, started)
    settings.discard(file)
    report.about |= {"waiting": settings.backlog, "running_when_killed": RUNNING_WHEN_KILLED}
    report.add("open_1m_s", worst, Target("<", 5))
    file = copy_of(grouped_file(settings, GROUPS), settings)
    firsts = [
        float(run_child(["-m", "benchmarks.opening", "open", str(file)]).split()[1]) for _ in range(settings.rounds)
    ]
    settings.discard(file)
    report.about[f"first_handler_{GROUPS}_groups_s"] = summary(firsts)
    report.add("open_10k_groups_s", statistics.median(firsts), Target("<=", 0.5))
    return report


def _kill_while_running(file: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.opening", "hang", str(file)],
        env=child_environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        if child.stdout.readline().strip() != "running":
            raise AssertionError("the child did not start its tasks")
        child.kill()


def _drop_cache(file: Path) -> None:
    flush_to_disk()
    for part in file.parent.iterdir():
        descriptor = os.open(part, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


async def _open(file: str) -> None:
    """Open the file, and dispatch one task."""
    first: list[float] = []
    domain, reached = countdown_domain(1, lambda _: first.append(time.perf_counter()))
    scheduler = Scheduler(file, domains=[domain])
    began = time.perf_counter()
    await scheduler.open()
    opened = time.perf_counter()
    async with scheduler.running():
        await reached.wait()
    await scheduler.close()
    print(opened - began, first[0] - began)


async def _hang(file: str) -> None:
    """Start tasks that never end, print a line, and wait for the kill."""
    hanging = Domain("bench")
    left = RUNNING_WHEN_KILLED

    @hanging.task(name="noop")
    async def hang(i: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            print("running", flush=True)
        await asyncio.Event().wait()

    async with Scheduler(file, domains=[hanging], max_concurrency=RUNNING_WHEN_KILLED) as scheduler:
        await scheduler.run()


if __name__ == "__main__":
    way, path = cast("tuple[str, str]", sys.argv[1:])
    asyncio.run(_open(path) if way == "open" else _hang(path))
