"""PgQueuer on asyncpg: one consumer that runs at most ``slots`` jobs at once."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from benchmarks.rivals.program import IDLE, PATIENCE, rate

CHUNK = 1_000


async def opened(where: str) -> tuple[Any, Any]:
    """Return a connection and its queries, with PgQueuer's tables installed."""
    import asyncpg
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.queries import Queries

    connection = await asyncpg.connect(where)
    return connection, Queries(AsyncpgDriver(connection))


async def worker(where: str, handler: Any) -> Any:
    import asyncpg
    from pgqueuer import PgQueuer
    from pgqueuer.db import AsyncpgDriver

    found = PgQueuer(AsyncpgDriver(await asyncpg.connect(where)))
    found.entrypoint("noop")(handler)
    return found


class Pgqueuer:
    def drain(self, where: str, tasks: int, slots: int) -> float:
        return asyncio.run(_drain(where, tasks, slots))

    def submit(self, where: str, tasks: int, slots: int) -> float:
        return asyncio.run(_submit(where, tasks))

    def latency(self, where: str, tasks: int, slots: int) -> float:
        return asyncio.run(_latency(where, tasks, slots))


async def _drain(where: str, tasks: int, slots: int) -> float:
    from pgqueuer.types import QueueExecutionMode

    _, queries = await opened(where)
    await queries.install()
    for start in range(0, tasks, CHUNK):
        size = min(CHUNK, tasks - start)
        await queries.enqueue(["noop"] * size, [b"1"] * size, [0] * size)
    left, ended = tasks, 0.0

    async def noop(job: Any) -> None:
        nonlocal left, ended
        left -= 1
        ended = time.perf_counter()

    own = await worker(where, noop)
    began = time.perf_counter()
    await own.qm.run(batch_size=slots, max_concurrent_tasks=2 * slots, mode=QueueExecutionMode.drain)
    if left:
        raise AssertionError(f"{left} of {tasks} jobs were not run once")
    return rate(tasks, began, ended)


async def _submit(where: str, tasks: int) -> float:
    _, queries = await opened(where)
    await queries.install()
    began = time.perf_counter()
    for _ in range(tasks):
        await queries.enqueue("noop", b"1")
    return rate(tasks, began, time.perf_counter())


async def _latency(where: str, tasks: int, slots: int) -> float:
    _, queries = await opened(where)
    await queries.install()
    started: asyncio.Queue[float] = asyncio.Queue()

    async def noop(job: Any) -> None:
        started.put_nowait(time.perf_counter())

    own = await worker(where, noop)
    running = asyncio.create_task(own.qm.run(batch_size=slots, max_concurrent_tasks=2 * slots))
    waits = []
    for _ in range(tasks):
        began = time.perf_counter()
        await queries.enqueue("noop", b"1")
        waits.append((await asyncio.wait_for(started.get(), PATIENCE) - began) * 1000)
        await asyncio.sleep(IDLE)
    own.qm.shutdown.set()
    await running
    return statistics.median(waits)


CONTESTANT = Pgqueuer()
