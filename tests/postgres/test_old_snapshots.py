"""A transaction holds an old snapshot for hours, as a report or a backup does: the queue is as fast as before."""

from __future__ import annotations

import psycopg

from taskmill import Domain, Scheduler

TASKS = 4000
work = Domain("work")


@work.task
async def step(n: int) -> None:
    """Do nothing."""


def read_of_queue(address: str) -> int:
    """Return how many entries of the queue's index were read so far, live and dead ones."""
    with psycopg.connect(address, autocommit=True) as connection:
        row = connection.execute(
            "SELECT idx_tup_read FROM pg_stat_user_indexes"
            " WHERE indexrelname = 'taskmill_task_queue' AND schemaname = current_schema()"
        ).fetchone()
        assert row is not None
        return int(row[0])


async def test_claims_do_not_read_what_has_left_the_queue_again_and_again(postgres_store: str) -> None:
    async with Scheduler(postgres_store, domains=[work], max_concurrency=40) as scheduler:
        for start in range(0, TASKS, 100):
            await scheduler.submit_many([step.prepare(n) for n in range(start, start + 100)])
        with psycopg.connect(postgres_store) as report:
            report.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            report.execute("SELECT count(*) FROM taskmill_task")
            await scheduler.run_until_idle()
        assert await scheduler.count(status="completed") == TASKS
    # The statistics of a session are reported when it is closed, at the latest.
    assert read_of_queue(postgres_store) < 20 * TASKS
