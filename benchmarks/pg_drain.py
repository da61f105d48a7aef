"""``pg_drain_vs_procrastinate``, ``pg_drain_vs_pgqueuer``: how fast a full queue on PostgreSQL is emptied.

All sides run in this process against the same server, on databases of their own that are filled before the clock
starts, and their tasks are ``async`` and do nothing. Each rival runs at the settings that its own documentation
recommends for throughput (:mod:`benchmarks.pg_procrastinate`, :mod:`benchmarks.pg_pgqueuer`); of the several settings
of PgQueuer the best of each round counts. Their clocks stop when the last handler has run, ours when the last task is
in history and the scheduler knows that nothing is left. taskmill has 500 slots, since PgQueuer has no limit at all;
other numbers are reported beside it. Slow sides drain fewer tasks; rates are compared.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

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
    pgqueuer = [max(found) for found in zip(*_of("pgqueuer", rates), strict=True)]
    report.add("pg_drain_vs_procrastinate", median_ratio(ours, rates["procrastinate"]), Target(">=", 10))
    report.add("pg_drain_vs_pgqueuer", median_ratio(ours, pgqueuer), Target(">=", 1))
    for n in OTHERS:
        for rival, found in (("procrastinate", rates["procrastinate"]), ("pgqueuer", pgqueuer)):
            ratio = median_ratio(rates[f"taskmill_{n}"], found)
            report.about[f"ratio_to_{rival}_at_max_concurrency_{n}"] = round(ratio, 3)
    report.about |= {"tasks": settings.tasks, "procrastinate_tasks": few, "max_concurrency": SLOTS}
    report.about |= {**pg_procrastinate.facts(), **pg_pgqueuer.facts()}
    return report


def _of(rival: str, rates: dict[str, list[float]]) -> list[list[float]]:
    return [found for name, found in rates.items() if name.startswith(rival)]


def _rival(server: Server, tasks: int, drain: pg_pgqueuer.Drain) -> float:
    return tasks / drain(new_database(server), tasks, partial(settle, server))


def _taskmill(server: Server, tasks: int, slots: int) -> float:
    place = new_database(server)

    async def drain() -> float:
        async with Scheduler(place, domains=[domain], max_concurrency=slots) as scheduler:
            await fill(scheduler, tasks)
            settle(server)
            began = time.perf_counter()
            await scheduler.run_until_idle()
            took = time.perf_counter() - began
            if (ended := await scheduler.count(status="completed")) != tasks:
                raise AssertionError(f"{ended} of {tasks} tasks are in history")
            return took

    return tasks / asyncio.run(drain())
