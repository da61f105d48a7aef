"""Waiting tasks on PostgreSQL that the server stores itself, which takes seconds for 1,000,000."""

from __future__ import annotations

import asyncio
import time

import psycopg
from tests.postgres.keeper import Server

from benchmarks.pg_server import new_database
from taskmill import Scheduler

# Oldest first, 100 in each millisecond. They are counted as taskmill counts the tasks that it stores.
FILL = """
WITH missing AS MATERIALIZED (SELECT %(waiting)s - count(*) AS n FROM taskmill_task),
    ids AS MATERIALIZED (SELECT taskmill_take_ids(n) AS first FROM missing),
    now AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms),
    stored AS (
        INSERT INTO taskmill_task (id, type, group_name, priority, urgency, status, payload, created_at, queued_at)
        SELECT
            first + i - 1, 'bench::noop',
            CASE WHEN %(groups)s = 1 THEN '' ELSE 'group-' || i %% %(groups)s END, 128, 128,
            'pending', '{"i":' || i || '}', now.ms - (missing.n - i) / 100, now.ms - (missing.n - i) / 100
        FROM missing, ids, now, generate_series(1, missing.n) AS i
        RETURNING group_name, type, status
    )
INSERT INTO taskmill_load (group_name, type, status, tasks)
SELECT group_name, type, status, count(*) FROM stored GROUP BY group_name, type, status
"""


def deep_database(server: Server, waiting: int, groups: int = 1) -> str:
    """Return the address of a new database with this many waiting tasks, spread evenly over the groups."""
    address = new_database(server)

    async def make_tables() -> None:
        async with Scheduler(address):
            pass

    asyncio.run(make_tables())
    began = time.perf_counter()
    fill_up(address, waiting, groups)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    print(f"  filled {waiting:,} waiting tasks in {time.perf_counter() - began:.0f} s", flush=True)
    return address


def fill_up(address: str, waiting: int, groups: int = 1) -> None:
    """Store tasks until this many wait."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(FILL, {"waiting": waiting, "groups": groups})
