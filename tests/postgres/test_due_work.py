"""Tasks that come due are found by id, even if the server's statistics about the queue are wrong."""

from __future__ import annotations

import asyncio

import psycopg

from taskmill import Domain, Scheduler

WAITING = 4000
DUE = 10
work = Domain("work")


@work.task
async def step(n: int) -> None:
    """Do nothing."""


async def test_a_promotion_does_not_walk_through_the_queue(postgres_store: str) -> None:
    async with Scheduler(postgres_store, domains=[work]) as scheduler:
        # The server analyzes the table while it is empty, and assumes an empty queue from then on.
        with psycopg.connect(postgres_store, autocommit=True) as connection:
            connection.execute("ANALYZE taskmill_task")
        await scheduler.group("held").pause()
        await scheduler.submit_many([step.options(group="held").prepare(n) for n in range(WAITING)])
        async with scheduler.running():
            for n in range(DUE):
                handle = await step.options(run_after=0.001).submit(n)
                await asyncio.wait_for(handle.wait(), timeout=30)
    assert _read_of_queue(postgres_store) < WAITING


def _read_of_queue(address: str) -> int:
    """Return how many entries of the queue's index were read so far."""
    with psycopg.connect(address, autocommit=True) as connection:
        row = connection.execute(
            "SELECT idx_tup_read FROM pg_stat_user_indexes"
            " WHERE indexrelname = 'taskmill_task_queue' AND schemaname = current_schema()"
        ).fetchone()
        assert row is not None
        return int(row[0])
