"""``pg_drain_vs_pgqueuer``, ``pg_drain_vs_procrastinate``: how fast a full queue on PostgreSQL is emptied.

All sides run in this process against the same server, on databases of their own that are filled before the clock
starts, and their tasks are ``async`` and do nothing. Names without a suffix compare defaults with defaults, all on
asyncio's own loop. The suffixes say what differs:

- ``…_best``: taskmill at its defaults, PgQueuer at the settings that its own documentation recommends for throughput,
  on uvloop. Of several such settings the one with the best median counts.
- ``…_500_slots``: the rival at its best as above, and taskmill with 500 slots on uvloop.

Their clocks stop when the last handler has run, ours when the last task is in history and the scheduler knows that
nothing is left. Slow sides drain fewer tasks; rates are compared.
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
from benchmarks.measuring import Report, Settings, Target, interleaved, summary
from benchmarks.pg_server import bench_server, new_database, settle
from benchmarks.workload import DEFAULT_SLOTS, check_all_ended, domain, fill
from taskmill import Scheduler


def measure(settings: Settings) -> Report:
    tasks = settings.tasks
    few = tasks // 20
    fast = {
        f"pgqueuer_{consumers}x{batch}": partial(pg_pgqueuer.drain_fast, consumers=consumers, batch=batch)
        for consumers, batch in pg_pgqueuer.BEST
    }
    with bench_server() as server:
        rates = interleaved(
            settings.rounds,
            {
                "procrastinate": partial(_rival, server, few, pg_procrastinate.drain),
                "procrastinate_best": partial(_rival, server, few, pg_procrastinate.drain_fast),
                "taskmill": partial(_taskmill, server, tasks, DEFAULT_SLOTS, asyncio.run),
                "pgqueuer": partial(_rival, server, tasks // 4, pg_pgqueuer.drain),
                "taskmill_500_slots": partial(_taskmill, server, tasks, 500, uvloop.run),
                **{name: partial(_rival, server, tasks, drain) for name, drain in fast.items()},
            },
        )
    report = Report()
    for name, found in rates.items():
        report.about[f"{name}_tasks_per_s"] = summary(found)
    ours, many = rates["taskmill"], rates["taskmill_500_slots"]
    best = max((rates[name] for name in fast), key=statistics.median)
    report.add_ratio("pg_drain_vs_pgqueuer", ours, rates["pgqueuer"], Target(">=", 1.5))
    report.add_ratio("pg_drain_vs_pgqueuer_best", ours, best, Target(">=", 0.9))
    report.add_ratio("pg_drain_vs_pgqueuer_500_slots", many, best, Target(">=", 1))
    report.add_ratio("pg_drain_vs_procrastinate", ours, rates["procrastinate"], Target(">=", 10))
    report.add_ratio("pg_drain_vs_procrastinate_500_slots", many, rates["procrastinate_best"], Target(">=", 10))
    report.about |= {
        "tasks": tasks,
        "pgqueuer_tasks": tasks // 4,
        "procrastinate_tasks": few,
        "max_concurrency": DEFAULT_SLOTS,
        **pg_procrastinate.facts(),
        **pg_pgqueuer.facts(),
    }
    return report


def _rival(server: Server, tasks: int, drain: pg_pgqueuer.Drain) -> float:
    return tasks / drain(new_database(server), tasks, partial(settle, server))


def _taskmill(server: Server, tasks: int, slots: int, run: Callable[[Coroutine[Any, Any, float]], float]) -> float:
    place = new_database(server)

    async def drain() -> float:
        async with Scheduler(place, domains=[domain], max_concurrency=slots) as scheduler:
            await fill(scheduler, tasks)
            settle(server)
            began = time.perf_counter()
            await scheduler.run_until_idle()
            took = time.perf_counter() - began
            await check_all_ended(scheduler, tasks)
            return took

    return tasks / run(drain())
