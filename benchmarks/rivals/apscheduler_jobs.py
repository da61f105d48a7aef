"""APScheduler 4: jobs in its SQLAlchemy data store, in a file, run by one scheduler."""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from typing import Any

from benchmarks.rivals.program import IDLE, PATIENCE, rate

started: asyncio.Queue[float] = asyncio.Queue()


async def noop(i: int) -> None:
    started.put_nowait(time.perf_counter())


def scheduler(where: str, slots: int) -> Any:
    from apscheduler import AsyncScheduler
    from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
    from sqlalchemy.ext.asyncio import create_async_engine

    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    engine = create_async_engine(f"sqlite+aiosqlite:///{where}")
    return AsyncScheduler(SQLAlchemyDataStore(engine), max_concurrent_jobs=slots)


class Apscheduler:
    def drain(self, where: str, tasks: int, slots: int) -> float:
        return asyncio.run(_drain(where, tasks, slots))

    def submit(self, where: str, tasks: int, slots: int) -> float:
        return asyncio.run(_submit(where, tasks, slots))

    def latency(self, where: str, tasks: int, slots: int) -> float:
        return asyncio.run(_latency(where, tasks, slots))


async def _drain(where: str, tasks: int, slots: int) -> float:
    async with scheduler(where, slots) as opened:
        for i in range(tasks):
            await opened.add_job(noop, args=[i])
        began = time.perf_counter()
        await opened.start_in_background()
        for _ in range(tasks):
            ended = await asyncio.wait_for(started.get(), PATIENCE)
        await opened.stop()
        return rate(tasks, began, ended)


async def _submit(where: str, tasks: int, slots: int) -> float:
    async with scheduler(where, slots) as opened:
        began = time.perf_counter()
        for i in range(tasks):
            await opened.add_job(noop, args=[i])
        return rate(tasks, began, time.perf_counter())


async def _latency(where: str, tasks: int, slots: int) -> float:
    waits = []
    async with scheduler(where, slots) as opened:
        await opened.start_in_background()
        for i in range(tasks):
            began = time.perf_counter()
            await opened.add_job(noop, args=[i])
            waits.append((await asyncio.wait_for(started.get(), PATIENCE) - began) * 1000)
            await asyncio.sleep(IDLE)
        await opened.stop()
    return statistics.median(waits)


CONTESTANT = Apscheduler()
