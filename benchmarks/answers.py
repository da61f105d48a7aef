"""``explain_1m_ms``, ``snapshot_1m_ms`` and ``status_1m_s``: answers about a file with 1,000,000 waiting tasks.

``explain`` is called for a task in the middle of the queue and for the last one, with 1 and with 1,000 groups, with
aging and without. ``taskmill status`` is a fresh process, from its start to its end. Each number is the slowest median.
Nothing dispatches meanwhile.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.backlog import deep_file, grouped_file
from benchmarks.measuring import Report, Settings, Target, run_child, summary
from benchmarks.workload import domain
from taskmill import Aging, Scheduler

GROUPS = 1_000
ASKED = 15
"""How often each call is made; the first one also fills caches and does not count."""


def measure(settings: Settings) -> Report:
    report = Report()
    files = {"1_group": deep_file(settings), f"{GROUPS}_groups": grouped_file(settings, GROUPS)}
    add_explanations(report, "explain_1m_ms", files, settings.backlog)
    add_snapshots(report, "snapshot_1m_ms", files)
    statuses = {name: [_status(file) for _ in range(settings.rounds + 1)][1:] for name, file in files.items()}
    for name in files:
        report.about[f"status_{name}_s"] = summary(statuses[name])
    report.add("status_1m_s", max(map(statistics.median, statuses.values())), Target("<=", 0.3))
    report.about |= {"waiting": settings.backlog, "groups": GROUPS}
    return report


def add_explanations(report: Report, name: str, stores: Mapping[str, str | Path], waiting: int) -> None:
    """Ask each store why tasks wait; the ids are 1 to ``waiting``."""
    slowest = 0.0
    for groups, store in stores.items():
        for aging in (None, Aging()):
            for where, id in (("middle", waiting // 2), ("end", waiting)):
                took = asyncio.run(_explain(store, aging, id))
                with_aging = "" if aging is None else "_aging"
                report.about[f"explain_{where}_{groups}{with_aging}_ms"] = summary(took)
                slowest = max(slowest, statistics.median(took))
    report.add(name, slowest, Target("<=", 50))


def add_snapshots(report: Report, name: str, stores: Mapping[str, str | Path]) -> None:
    """Ask each store for a snapshot."""
    snapshots = {groups: asyncio.run(_snapshot(store)) for groups, store in stores.items()}
    for groups, took in snapshots.items():
        report.about[f"snapshot_{groups}_ms"] = summary(took)
    report.add(name, max(map(statistics.median, snapshots.values())), Target("<=", 100))


async def _explain(store: str | Path, aging: Aging | None, id: int) -> list[float]:
    """Return the milliseconds of each answer."""
    async with Scheduler(store, domains=[domain], aging=aging) as scheduler:
        took: list[float] = []
        for _ in range(ASKED + 1):
            began = time.perf_counter()
            await scheduler.explain(id)
            took.append((time.perf_counter() - began) * 1000)
    return took[1:]


async def _snapshot(store: str | Path) -> list[float]:
    """Return the milliseconds of each answer."""
    async with Scheduler(store, domains=[domain]) as scheduler:
        took: list[float] = []
        for _ in range(ASKED + 1):
            began = time.perf_counter()
            snapshot = await scheduler.snapshot()
            took.append((time.perf_counter() - began) * 1000)
    if snapshot.counts["pending"] != sum(group.pending for group in snapshot.groups.values()):
        raise AssertionError(f"the groups do not add up to {snapshot.counts}")
    return took[1:]


def _status(file: Path) -> float:
    """Return the seconds that the process took."""
    began = time.perf_counter()
    run_child(["-m", "taskmill", "status", str(file)])
    return time.perf_counter() - began
