"""Procrastinate at its best, for :mod:`benchmarks.pg_drain`.

One worker with its psycopg connector, as its documentation has it for ``async`` tasks: many at once, and a pool that is
large enough for them. It keeps finished jobs, which is its default, as taskmill keeps its history. The clock stops with
the last handler.
"""

from __future__ import annotations

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
    return uvloop.run(_drain(address, tasks, filled))


async def _drain(address: str, tasks: int, filled: Callable[[], None]) -> float:
    from procrastinate import App, PsycopgConnector

    # Its worker would log several lines per job; silence is in its favour.
    logging.getLogger("procrastinate").setLevel(logging.WARNING)
    app = App(connector=PsycopgConnector(conninfo=address, min_size=CONNECTIONS, max_size=CONNECTIONS))
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
        await app.run_worker_async(concurrency=CONCURRENCY, wait=False, install_signal_handlers=False)
    if left:
        raise AssertionError(f"{left} of {tasks} jobs were not run once")
    return ended_at - began


def facts() -> dict[str, Any]:
    return {
        "procrastinate_version": version("procrastinate"),
        "procrastinate_concurrency": CONCURRENCY,
        "procrastinate_connections": CONNECTIONS,
    }
