"""``handlers_5ms_vs_ideal``: how much of the slots' time goes to handlers that wait 5 ms, on a full queue.

The ideal is 8 / 0.005 s = 1,600 tasks per second: every slot always has a handler, and every handler takes exactly
5 ms. The clock runs until all tasks are in history. asyncio itself does not reach the ideal, since it wakes up a little
late from each sleep. So ``about`` also has the rate of eight workers that do nothing but sleep 5 ms in a loop, and the
ratio to that. ``pg_…`` is the same on a PostgreSQL server of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from tests.postgres.keeper import Server

from benchmarks.measuring import Report, Settings, Target, flush_to_disk, interleaved, ratios, summary
from benchmarks.pg_server import bench_server, new_database, settle
from benchmarks.workload import CHUNK, DEFAULT_SLOTS, check_all_ended
from taskmill import Domain, Scheduler

WAIT = 0.005
IDEAL = DEFAULT_SLOTS / WAIT

domain = Domain("bench")


@domain.task
async def wait(i: int) -> None:
    await asyncio.sleep(WAIT)


def measure(settings: Settings) -> Report:
    tasks = settings.tasks // 4
    with bench_server() as server:
        rates = interleaved(
            settings.rounds,
            {
                "asyncio": partial(_asyncio, tasks),
                "file": partial(_file, settings, tasks),
                "pg": partial(_server, server, tasks),
            },
        )
    report = Report()
    for name, found in rates.items():
        report.about[f"{name}_tasks_per_s"] = summary(found)
    for name, number in (("file", "handlers_5ms_vs_ideal"), ("pg", "pg_handlers_5ms_vs_ideal")):
        report.add_ratio(number, rates[name], [IDEAL] * settings.rounds, Target(">=", 0.9))
        report.about[f"{name}_vs_asyncio"] = summary(ratios(rates[name], rates["asyncio"]))
    report.about |= {"ideal_tasks_per_s": IDEAL, "tasks": tasks, "max_concurrency": DEFAULT_SLOTS}
    return report


def _asyncio(tasks: int) -> float:
    async def worker() -> None:
        for _ in range(tasks // DEFAULT_SLOTS):
            await asyncio.sleep(WAIT)

    async def work() -> float:
        began = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(DEFAULT_SLOTS)))
        return time.perf_counter() - began

    return tasks // DEFAULT_SLOTS * DEFAULT_SLOTS / asyncio.run(work())


def _file(settings: Settings, tasks: int) -> float:
    file = settings.new_file("waits")
    took = asyncio.run(_drain(str(file), tasks, flush_to_disk))
    settings.discard(file)
    return tasks / took


def _server(server: Server, tasks: int) -> float:
    return tasks / asyncio.run(_drain(new_database(server), tasks, partial(settle, server)))


async def _drain(place: str, tasks: int, filled: Callable[[], None]) -> float:
    async with Scheduler(place, domains=[domain]) as scheduler:
        for start in range(0, tasks, CHUNK):
            await scheduler.submit_many([wait.prepare(i) for i in range(start, min(start + CHUNK, tasks))])
        filled()
        began = time.perf_counter()
        await scheduler.run_until_idle()
        took = time.perf_counter() - began
        await check_all_ended(scheduler, tasks)
        return took
