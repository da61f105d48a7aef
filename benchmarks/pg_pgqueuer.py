"""PgQueuer at its defaults and at its best, for :mod:`benchmarks.pg_drain`.

At its defaults it is one consumer on asyncpg and asyncio's own loop, with the default batch size and concurrency of its
``run``.

At its best it runs as its guide to performance says: asyncpg, the fastest of its drivers by its own word; uvloop, as on
its command line; its settings for autovacuum; larger batches where jobs are short; no limit on jobs at once. Its
benchmark has five consumers in one process, each with a connection; one with large batches is the other way to keep a
server busy.

Its tables are ``durable``, its default and the only level at which a crash loses nothing. The queue is drained in its
own drain mode; the clock stops with the last handler, and neither the last write of its log nor its shutdown counts.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Protocol

import uvloop

BEST = ((1, 1_000), (5, 100))
"""Consumers, and jobs that each fetches at once: which of the two is faster differs from machine to machine."""
CHUNK = 1_000


class Drain(Protocol):
    """Fills a queue, calls ``filled`` and returns the seconds until the queue is empty."""

    def __call__(self, address: str, tasks: int, filled: Callable[[], None], /) -> float: ...


def drain(address: str, tasks: int, filled: Callable[[], None], /) -> float:
    """Drain with its defaults."""
    return asyncio.run(_drain(address, tasks, filled, 1, _default("batch_size"), tuned=False))


def drain_fast(address: str, tasks: int, filled: Callable[[], None], /, *, consumers: int, batch: int) -> float:
    """Drain with the settings that its guide recommends."""
    return uvloop.run(_drain(address, tasks, filled, consumers, batch, tuned=True))


async def _drain(
    address: str, tasks: int, filled: Callable[[], None], consumers: int, batch: int, *, tuned: bool
) -> float:
    import asyncpg
    from pgqueuer import PgQueuer
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.queries import Queries
    from pgqueuer.types import QueueExecutionMode

    connections = [await asyncpg.connect(address) for _ in range(consumers)]
    queries = Queries(AsyncpgDriver(connections[0]))
    await queries.install()
    if tuned:
        await queries.optimize_autovacuum()
    for _ in range(0, tasks, CHUNK):
        await queries.enqueue(["noop"] * CHUNK, [b'{"i":1}'] * CHUNK, [0] * CHUNK)
    filled()
    left = tasks
    ended_at = 0.0

    async def noop(job: Any) -> None:
        nonlocal left, ended_at
        left -= 1
        if not left:
            ended_at = time.perf_counter()

    workers = [PgQueuer(AsyncpgDriver(connection)) for connection in connections]
    for worker in workers:
        worker.entrypoint("noop")(noop)
    began = time.perf_counter()
    await asyncio.gather(*(worker.qm.run(batch_size=batch, mode=QueueExecutionMode.drain) for worker in workers))
    for connection in connections:
        await connection.close()
    if left:
        raise AssertionError(f"{left} of {tasks} jobs were not run once")
    return ended_at - began


def facts() -> dict[str, Any]:
    return {
        "pgqueuer_version": version("pgqueuer"),
        "pgqueuer_batch_size": _default("batch_size"),
        "pgqueuer_jobs_at_once": _default("max_concurrent_tasks"),
        "asyncpg_version": version("asyncpg"),
    }


def _default(name: str) -> Any:
    """Return the default of a parameter of its ``run``."""
    from pgqueuer.qm import QueueManager

    return inspect.signature(QueueManager.run).parameters[name].default
