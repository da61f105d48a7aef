"""Tables stay small: autovacuum is configured for them, and history is pruned in batches that leave reusable space."""

from __future__ import annotations

import asyncio

import psycopg

from taskmill import Retention, Scheduler
from taskmill.core.clock import SystemClock
from taskmill.model.settings import PRUNE_BITE
from taskmill.store.postgres.store import PostgresStore
from tests.postgres.keeper import Server
from tests.postgres.server import address
from tests.store.contract.samples import NOW, add, new_task

# For each table that changes all the time: the fraction, and the additional number, of dead rows before it is
# vacuumed, and its fillfactor.
LIVE = {
    "taskmill_task": (0.02, 500, 80),
    "taskmill_task_tag": (0.02, 500, 100),
    "taskmill_dependency": (0.02, 500, 90),
    "taskmill_commit": (0, 500, 50),
    "taskmill_node": (0, 200, 50),
    "taskmill_tally": (0, 500, 50),
    "taskmill_control": (0, 500, 50),
    "taskmill_load": (0, 2000, 100),
    "taskmill_ended_pause": (0, 200, 50),
    "taskmill_setting": (0, 200, 50),
    "taskmill_io": (0, 200, 50),
    "taskmill_cron": (0.02, 200, 70),
    "taskmill_series": (0.02, 200, 80),
    "taskmill_history": (0.05, 2000, 100),
    "taskmill_history_tag": (0.05, 2000, 100),
    "taskmill_error": (0.05, 2000, 100),
}
NEVER_CHANGED = {"taskmill_schema", "taskmill_type", "taskmill_writing"}


async def _made(address: str) -> PostgresStore:
    store = PostgresStore(address, "full", SystemClock())
    await store.open()
    return store


async def test_each_table_has_settings_for_autovacuum(postgres_store: str) -> None:
    await (await _made(postgres_store)).close()
    with psycopg.connect(postgres_store) as connection:
        rows = connection.execute(
            "SELECT relname, coalesce(reloptions, '{}') FROM pg_class"
            " WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
        ).fetchall()
    assert {table for table, _ in rows} == LIVE.keys() | NEVER_CHANGED
    for table, options in rows:
        if table in LIVE:
            said = {name: float(value) for name, value in (option.split("=") for option in options)}
            assert (
                said["autovacuum_vacuum_scale_factor"],
                said["autovacuum_vacuum_threshold"],
                said.get("fillfactor", 100),
            ) == LIVE[table], table


async def test_signs_of_life_progress_and_tallies_leave_nothing_in_an_index(postgres_store: str) -> None:
    store = await _made(postgres_store)
    try:
        right = await store.acquire_dispatch()
        await add(store, new_task())
        with psycopg.connect(postgres_store) as connection:
            _fill(connection, first=100, count=1)
            for _ in range(10):
                connection.execute("UPDATE taskmill_node SET seen_at = clock_timestamp()")
                connection.execute("UPDATE taskmill_task SET progress = '[0.5]'")
                connection.execute("UPDATE taskmill_tally SET ended = ended + 1")
            rows = connection.execute(
                "SELECT relname, n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE n_tup_upd > 0"
                " AND schemaname = current_schema() ORDER BY relname"
            ).fetchall()
        right.release()
    finally:
        await store.close()
    assert rows == [(table, 10, 10) for table in ("taskmill_node", "taskmill_tally", "taskmill_task")]


async def test_history_is_pruned_in_bites_and_the_room_is_used_again(own_server: Server) -> None:
    # Not the server of the run: a long transaction of another test keeps VACUUM from removing rows.
    store = await _made(address(own_server.folder))
    rules = Retention(max_count=100, max_age=None).rules()
    sizes: list[int] = []
    try:
        with psycopg.connect(address(own_server.folder), autocommit=True) as connection:
            for round in range(8):
                _fill(connection, first=round * 10_000 + 1, count=3 * PRUNE_BITE)
                bites: list[int] = []
                while not bites or bites[-1] == PRUNE_BITE:
                    bites.append(await store.prune(rules, NOW, PRUNE_BITE))
                assert max(bites) == PRUNE_BITE
                assert len(bites) >= 3
                kept = connection.execute("SELECT count(*) FROM taskmill_history").fetchone()
                assert kept == (100,)
                connection.execute("VACUUM taskmill_history")
                row = connection.execute("SELECT pg_total_relation_size('taskmill_history')").fetchone()
                assert row is not None
                sizes.append(row[0])
    finally:
        await store.close()
    # Empty pages of an index can be reused only two rounds later.
    assert sizes[-1] <= 1.1 * sizes[3], sizes


async def test_the_counters_of_sessions_are_merged_when_a_node_enters(postgres_store: str) -> None:
    store = await _made(postgres_store)
    try:
        with psycopg.connect(postgres_store, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO taskmill_tally SELECT 'd::work', 'g', ending, 3, shard - 30, 5, shard"
                " FROM generate_series(0, 63) AS shard, unnest(ARRAY['completed', 'failed']) AS ending"
            )
            before = connection.execute(_SUMS).fetchall()
            right = await store.acquire_dispatch()
            after = connection.execute(_SUMS).fetchall()
            rows = connection.execute("SELECT count(*) FROM taskmill_tally").fetchone()
        right.release()
    finally:
        await store.close()
    assert after == before
    assert rows == (2,)


_SUMS = "SELECT ending, sum(ended), sum(kept), sum(duration_ms) FROM taskmill_tally GROUP BY 1 ORDER BY 1"


async def test_marks_of_programs_that_are_gone_are_forgotten_though_no_node_enters(postgres_store: str) -> None:
    node, producer = await _made(postgres_store), await _made(postgres_store)
    try:
        await add(producer, new_task())
        with psycopg.connect(postgres_store, autocommit=True) as connection:
            connection.execute("UPDATE taskmill_commit SET made_at = made_at - interval '2 days'")
            await node.prune(Retention(max_count=100).rules(), NOW, PRUNE_BITE)
            left = connection.execute("SELECT count(*) FROM taskmill_commit").fetchone()
        assert left == (1,), "its own mark"
    finally:
        await producer.close()
        await node.close()


async def test_looking_at_what_is_paused_prepares_no_new_statement_each_time(postgres_store: str) -> None:
    prepared: list[int] = []
    async with Scheduler(postgres_store) as scheduler:
        await scheduler.pause()
        store = scheduler._store
        assert isinstance(store, PostgresStore)
        for _ in range(3):
            await asyncio.sleep(0.002)
            await scheduler.tasks(status="paused")
            await scheduler.count(status="paused")
            await scheduler.snapshot()
            row = store._reading.raw.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
            assert row is not None
            prepared.append(row[0])
    assert prepared[2] == prepared[1]


def _fill(connection: psycopg.Connection[tuple[object, ...]], first: int, count: int) -> None:
    connection.execute(
        "INSERT INTO taskmill_history"
        " (id, type, group_name, priority, ending, payload, attempt, retries, created_at, ended_at)"
        " SELECT n, 'd::t', '', 128, 'completed', '{}', 1, 0, %s, %s + n FROM generate_series(%s::int, %s::int) AS n",
        (NOW, NOW, first, first + count - 1),
    )
    connection.execute(
        "INSERT INTO taskmill_tally AS t VALUES ('d::t', '', 'completed', %s, %s, 0, 0)"
        " ON CONFLICT (type, group_name, ending, shard) DO UPDATE SET kept = t.kept + excluded.kept",
        (count, count),
    )
