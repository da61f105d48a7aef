"""``pg_drain_vs_procrastinate``, ``pg_drain_vs_pgqueuer``: how fast a full queue on PostgreSQL is emptied.

All sides run in this process against the same server, on databases of their own that are filled before the clock
starts, and their tasks are ``async`` and do nothing. Each rival runs at the settings that its own documentation
recommends for throughput (:mod:`benchmarks.pg_procrastinate`, :mod:`benchmarks.pg_pgqueuer`); of the several settings
of PgQueuer the one with the best median counts. All run on uvloop, as PgQueuer's command line does, and all keep what
has ended: retention is off on our side. Their clocks stop when the last handler has run, ours when the last task is in
history and the scheduler knows that nothing is left. taskmill has 500 slots, since PgQueuer has no limit at all; other
numbers, and 500 on asyncio's own loop, are reported beside it. Slow sides drain fewer tasks; rates are compared.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import uvloop
from tests.postgres.keeper import Server

from benchmarks import pg_pgqueuer, pg_procrastinate
from benchmarks.measuring import Report, Settings, Target, interleaved, median_ratio, summary
from benchmarks.pg_server import bench_server, new_database, settle
from benchmarks.workload import domain, fill
from taskmill import Scheduler

SLOTS = 500
OTHERS = (8, 100)


def measure(settings: Settings) -> Report:
    few = settings.tasks // 20
    report = Report()
    with bench_server() as server:
        sides = {
            "procrastinate": partial(_rival, server, few, pg_procrastinate.drain),
            f"taskmill_{SLOTS}": partial(_taskmill, server, settings.tasks, SLOTS),
            "taskmill_on_asyncio": partial(_taskmill, server, settings.tasks, SLOTS, asyncio.run),
            **{
                f"pgqueuer_{consumers}x{batch}": partial(
                    _rival, server, settings.tasks, partial(pg_pgqueuer.drain, consumers=consumers, batch=batch)
                )
                for consumers, batch in pg_pgqueuer.SETTINGS
            },
            **{f"taskmill_{n}": partial(_taskmill, server, settings.tasks // 4, n) for n in OTHERS},
        }
        rates = interleaved(settings.rounds, sides)
    for name, found in rates.items():
        report.about[f"{name}_tasks_per_s"] = summary(found)
    ours = rates[f"taskmill_{SLOTS}"]
    pgqueuer = max((found for name, found in rates.items() if name.startswith("pgqueuer")), key=statistics.median)
    report.add("pg_drain_vs_procrastinate", median_ratio(ours, rates["procrastinate"]), Target(">=", 10))
    report.add("pg_drain_vs_pgqueuer", median_ratio(ours, pgqueuer), Target(">=", 1))
    for name in ("taskmill_on_asyncio", *(f"taskmill_{n}" for n in OTHERS)):
        for rival, found in (("procrastinate", rates["procrastinate"]), ("pgqueuer", pgqueuer)):
            report.about[f"{name}_vs_{rival}"] = round(median_ratio(rates[name], found), 3)
    report.about |= {"tasks": settings.tasks, "procrastinate_tasks": few, "max_concurrency": SLOTS}
    report.about |= {**pg_procrastinate.facts(), **pg_pgqueuer.facts()}
    return report


def _rival(server: Server, tasks: int, drain: pg_pgqueuer.Drain) -> float:
    return tasks / drain(new_database(server), tasks, partial(settle, server))


def _taskmill(
    server: Server, tasks: int, slots: int, run: Callable[[Coroutine[Any, Any, float]], float] | None = None
) -> float:
    place = new_database(server)

    async def drain() -> float:
        async with Scheduler(place, domains=[domain], max_concurrency=slots, retention=None) as scheduler:
            await fill(scheduler, tasks)
            settle(server)
            began = time.perf_counter()
            await scheduler.run_until_idle()
            took = time.perf_counter() - began
            if (ended := await scheduler.count(status="completed")) != tasks:
                raise AssertionError(f"{ended} of {tasks} tasks are in history")
            return took

    return tasks / (run or uvloop.run)(drain())
