"""Chancy: one worker that runs ``slots`` asynchronous jobs at once."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from benchmarks.rivals.program import IDLE, PATIENCE, rate

CHUNK = 1_000
POLL = 1
"""Seconds between two polls of the worker, the least that it accepts; a notification makes it poll at once."""

started: asyncio.Queue[float] = asyncio.Queue()


async def noop(*, i: int) -> None:
    started.put_nowait(time.perf_counter())


def jobs(numbers: range) -> list[Any]:
    from chancy import Job

    return [Job.from_func(noop, kwargs={"i": i}) for i in numbers]


def queue(slots: int) -> Any:
    from chancy import Queue

    executor = "chancy.executors.asyncex.AsyncExecutor"
    return Queue("default", concurrency=slots, executor=executor, polling_interval=POLL, eager_polling=True)


class Chancy:
    def drain(self, where: str, tasks: int, slots: int) -> float:
        return asyncio.run(_drain(where, tasks, slots))

    def submit(self, where: str, tasks: int, slots: int) -> float:
        return asyncio.run(_submit(where, tasks, slots))

    def latency(self, where: str, tasks: int, slots: int) -> float:
        return asyncio.run(_latency(where, tasks, slots))


async def _drain(where: str, tasks: int, slots: int) -> float:
    from chancy import Chancy as Application
    from chancy import Worker

    async with Application(where) as app:
        await app.migrate()
        await app.declare(queue(slots))
        for start in range(0, tasks, CHUNK):
            async for _ in app.push_many(jobs(range(start, min(start + CHUNK, tasks)))):
                continue
        began = ended = time.perf_counter()
        async with Worker(app, register_signal_handlers=False):
            for _ in range(tasks):
                ended = await asyncio.wait_for(started.get(), PATIENCE)
        return rate(tasks, began, ended)


async def _submit(where: str, tasks: int, slots: int) -> float:
    from chancy import Chancy as Application

    async with Application(where) as app:
        await app.migrate()
        await app.declare(queue(slots))
        ready = jobs(range(tasks))
        began = time.perf_counter()
        for job in ready:
            await app.push(job)
        return rate(tasks, began, time.perf_counter())


async def _latency(where: str, tasks: int, slots: int) -> float:
    from chancy import Chancy as Application
    from chancy import Worker

    waits = []
    async with Application(where) as app:
        await app.migrate()
        await app.declare(queue(slots))
        async with Worker(app, register_signal_handlers=False):
            # The worker reads its queues at its start; the first job waits for that.
            await app.push(jobs(range(1))[0])
            await asyncio.wait_for(started.get(), PATIENCE)
            for job in jobs(range(tasks)):
                began = time.perf_counter()
                await app.push(job)
                waits.append((await asyncio.wait_for(started.get(), PATIENCE) - began) * 1000)
                await asyncio.sleep(IDLE)
    return statistics.median(waits)


CONTESTANT = Chancy()
