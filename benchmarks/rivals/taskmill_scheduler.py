"""taskmill itself: ``where`` is a file, ``process:FILE`` for ``durability="process"``, or a PostgreSQL address.

The clock of ``drain`` stops when all tasks are in history.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from benchmarks.rivals.program import IDLE, rate
from taskmill import Domain, Scheduler

CHUNK = 1_000


def scheduler(where: str, slots: int, domain: Domain) -> Scheduler:
    durability: Any = "process" if where.startswith("process:") else "full"
    store = where.removeprefix("process:")
    return Scheduler(store, domains=[domain], max_concurrency=slots, durability=durability)


class Taskmill:
    def drain(self, where: str, tasks: int, slots: int) -> float:
        return asyncio.run(_drain(where, tasks, slots))

    def submit(self, where: str, tasks: int, slots: int) -> float:
        return asyncio.run(_submit(where, tasks, slots))

    def latency(self, where: str, tasks: int, slots: int) -> float:
        return asyncio.run(_latency(where, tasks, slots))


async def _drain(where: str, tasks: int, slots: int) -> float:
    domain = Domain("bench")

    @domain.task
    async def noop(i: int) -> None:
        """Do nothing."""

    async with scheduler(where, slots, domain) as opened:
        for start in range(0, tasks, CHUNK):
            await opened.submit_many([noop.prepare(i) for i in range(start, min(start + CHUNK, tasks))])
        began = time.perf_counter()
        await opened.run_until_idle()
        return rate(tasks, began, time.perf_counter())


async def _submit(where: str, tasks: int, slots: int) -> float:
    domain = Domain("bench")

    @domain.task
    async def noop(i: int) -> None:
        """Do nothing."""

    async with scheduler(where, slots, domain):
        began = time.perf_counter()
        for i in range(tasks):
            await noop.submit(i)
        return rate(tasks, began, time.perf_counter())


async def _latency(where: str, tasks: int, slots: int) -> float:
    domain = Domain("bench")
    started: asyncio.Queue[float] = asyncio.Queue()

    @domain.task
    async def noop(i: int) -> None:
        started.put_nowait(time.perf_counter())

    waits = []
    async with scheduler(where, slots, domain) as opened, opened.running():
        for i in range(tasks):
            began = time.perf_counter()
            await noop.submit(i)
            waits.append((await started.get() - began) * 1000)
            await asyncio.sleep(IDLE)
    return statistics.median(waits)


CONTESTANT = Taskmill()
