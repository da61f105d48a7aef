"""Procrastinate with its psycopg connector: one worker that runs ``slots`` jobs at once."""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from typing import Any

from benchmarks.rivals.program import IDLE, PATIENCE, rate

CHUNK = 1_000


def application(where: str, slots: int) -> Any:
    from procrastinate import App, PsycopgConnector

    # Its worker would log several lines per job; without them it is faster.
    logging.getLogger("procrastinate").setLevel(logging.WARNING)
    return App(connector=PsycopgConnector(conninfo=where, min_size=slots, max_size=slots + 2))


class Procrastinate:
    def drain(self, where: str, tasks: int, slots: int) -> float:
        return asyncio.run(_drain(where, tasks, slots))

    def submit(self, where: str, tasks: int, slots: int) -> float:
        return asyncio.run(_submit(where, tasks, slots))

    def latency(self, where: str, tasks: int, slots: int) -> float:
        return asyncio.run(_latency(where, tasks, slots))


async def _drain(where: str, tasks: int, slots: int) -> float:
    app = application(where, slots)
    left, ended = tasks, 0.0

    @app.task(name="noop")  # type: ignore[untyped-decorator]
    async def noop(i: int) -> None:
        nonlocal left, ended
        left -= 1
        ended = time.perf_counter()

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for start in range(0, tasks, CHUNK):
            chunk: list[Any] = [{"i": i} for i in range(start, min(start + CHUNK, tasks))]
            await noop.batch_defer_async(*chunk)
        began = time.perf_counter()
        await app.run_worker_async(wait=False, install_signal_handlers=False, concurrency=slots)
    if left:
        raise AssertionError(f"{left} of {tasks} jobs were not run once")
    return rate(tasks, began, ended)


async def _submit(where: str, tasks: int, slots: int) -> float:
    app = application(where, slots)

    @app.task(name="noop")  # type: ignore[untyped-decorator]
    async def noop(i: int) -> None:
        """Do nothing."""

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        began = time.perf_counter()
        for i in range(tasks):
            await noop.defer_async(i=i)
        return rate(tasks, began, time.perf_counter())


async def _latency(where: str, tasks: int, slots: int) -> float:
    app = application(where, slots)
    started: asyncio.Queue[float] = asyncio.Queue()

    @app.task(name="noop")  # type: ignore[untyped-decorator]
    async def noop(i: int) -> None:
        started.put_nowait(time.perf_counter())

    waits = []
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        running = asyncio.create_task(app.run_worker_async(install_signal_handlers=False, concurrency=slots))
        for i in range(tasks):
            began = time.perf_counter()
            await noop.defer_async(i=i)
            waits.append((await asyncio.wait_for(started.get(), PATIENCE) - began) * 1000)
            await asyncio.sleep(IDLE)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return statistics.median(waits)


CONTESTANT = Procrastinate()
