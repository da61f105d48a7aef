"""``memory_1m_mb``: how much a process grows when it opens a file with 1,000,000 waiting tasks and works on
it.

A fresh child imports taskmill, notes its resident memory, opens the file, dispatches some thousand tasks and reports
the peak the kernel saw (``VmHWM``). The difference is everything that the backlog costs: SQLite's page cache, the front
of the queue, handlers. A second child does the same with as many waiting tasks as it dispatches, for comparison.
``memory_10k_groups_mb`` is the median growth of several children on a file whose 1,000,000 tasks are in 10,000 groups.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from pathlib import Path

from benchmarks.backlog import copy_of, deep_file, fill_file, grouped_file
from benchmarks.measuring import Report, Settings, Target, run_child, summary
from benchmarks.workload import countdown_domain
from taskmill import Scheduler

DISPATCHED = 5_000
GROUPS = 10_000


def measure(settings: Settings) -> Report:
    deep = copy_of(deep_file(settings), settings)
    shallow = settings.new_file("shallow")
    fill_file(shallow, DISPATCHED)
    report = Report()
    for name, file in (("deep", deep), ("shallow", shallow)):
        before, peak = map(float, run_child(["-m", "benchmarks.memory", str(file)]).split())
        report.about[name] = {"before_mb": before, "peak_mb": peak}
        if file is deep:
            report.add("memory_1m_mb", peak - before, Target("<=", 150))
        settings.discard(file)
    grown: list[float] = []
    for _ in range(settings.rounds):
        file = copy_of(grouped_file(settings, GROUPS), settings)
        before, peak = map(float, run_child(["-m", "benchmarks.memory", str(file)]).split())
        grown.append(peak - before)
        settings.discard(file)
    report.about[f"{GROUPS}_groups_mb"] = summary(grown)
    report.add("memory_10k_groups_mb", statistics.median(grown), Target("<=", 60))
    report.about |= {"waiting": settings.backlog, "dispatched": DISPATCHED}
    return report


def resident_mb(field: str) -> float:
    """Return ``VmRSS`` or ``VmHWM`` of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"the kernel does not tell {field}")


async def _dispatch(file: str) -> None:
    domain, reached = countdown_domain(DISPATCHED, lambda _: None)
    async with Scheduler(file, domains=[domain]) as scheduler, scheduler.running():
        await reached.wait()


if __name__ == "__main__":
    before = resident_mb("VmRSS")
    asyncio.run(_dispatch(sys.argv[1]))
    print(f"{before:.1f} {resident_mb('VmHWM'):.1f}")
