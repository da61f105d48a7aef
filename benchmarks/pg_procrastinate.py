"""Procrastinate at its defaults and at its best, for :mod:`benchmarks.pg_drain`.

One worker with its psycopg connector, as its documentation shows for ``async`` tasks. At its defaults it runs one job
at a time, on asyncio's own loop; at its best many at once, on uvloop, with a pool that is large enough for them. It
keeps finished jobs, which is its default. The clock stops with the last handler.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import uvloop

CONCURRENCY = 100
CONNECTIONS = 20
CHUNK = 1_000


def drain(address: str, tasks: int, filled: Callable[[], None], /) -> float:
    """Drain with its defaults."""
    return asyncio.run(_drain(address, tasks, filled, {}, {}))


def drain_fast(address: str, tasks: int, filled: Callable[[], None], /) -> float:
    """Drain with many jobs at once."""
    pool = {"min_size": CONNECTIONS, "max_size": CONNECTIONS}
    return uvloop.run(_drain(address, tasks, filled, pool, {"concurrency": CONCURRENCY}))


async def _drain(
    address: str, tasks: int, filled: Callable[[], None], pool: dict[str, Any], options: dict[str, Any]
) -> float:
    from procrastinate import App, PsycopgConnector

    # Its worker would log several lines per job; without them it is faster.
    logging.getLogger("procrastinate").setLevel(logging.WARNING)
    app = App(connector=PsycopgConnector(conninfo=address, **pool))
    left = tasks
    ended_at = 0.0

    @app.task(name="noop")
    async def noop(i: int) -> None:
        nonlocal left, ended_at
        left -= 1
        if not left:
            ended_at = time.perf_counter()

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for start in range(0, tasks, CHUNK):
            chunk: list[Any] = [{"i": i} for i in range(start, min(start + CHUNK, tasks))]
            await noop.batch_defer_async(*chunk)
        filled()
        began = time.perf_counter()
        await app.run_worker_async(wait=False, install_signal_handlers=False, **options)
    if left:
        raise AssertionError(f"{left} of {tasks} jobs were not run once")
    return ended_at - began


def facts() -> dict[str, Any]:
    return {
        "procrastinate_version": version("procrastinate"),
        "procrastinate_best_concurrency": CONCURRENCY,
        "procrastinate_best_connections": CONNECTIONS,
    }
