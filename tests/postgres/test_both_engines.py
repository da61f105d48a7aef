"""A test that runs on both engines gets its own empty stores, for as long as it runs."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from taskmill import Domain, Scheduler
from taskmill.core.clock import SystemClock
from taskmill.store.postgres.store import PostgresStore
from tests.both_engines import Engine, name_of
from tests.postgres.schemas import Schemas

domain = Domain("d")


@domain.task
async def work(n: int) -> int:
    return n


def _rows(address: str, table: str) -> list[tuple[object, ...]]:
    with psycopg.connect(address) as connection:
        return connection.execute(f"SELECT * FROM {table}".encode()).fetchall()


async def _use(store: str | Path) -> list[int]:
    async with Scheduler(store, domains=[domain]) as scheduler:
        handles = await scheduler.submit_many([work.options(key=f"k{n}", tags={"a": "b"}).prepare(n) for n in range(3)])
        await scheduler.group("g").pause()
        await scheduler.run_until_idle()
        await scheduler.submit(work.options(run_after=60).prepare(9))
    return [handle.id for handle in handles]


async def test_a_schema_that_was_given_back_is_as_new(schemas: Schemas) -> None:
    first = schemas.take()
    new = {table: _rows(schemas.address(first), table) for table in schemas.tables}
    assert await _use(schemas.address(first)) == [1, 2, 3]
    assert {table: _rows(schemas.address(first), table) for table in schemas.tables} != new
    schemas.give_back(first)
    again = schemas.take()
    assert again == first, "the schema is reused"
    assert {table: _rows(schemas.address(again), table) for table in schemas.tables} == new
    assert await _use(schemas.address(again)) == [1, 2, 3]
    schemas.give_back(again)


async def test_a_schema_in_which_a_node_may_be_at_work_is_thrown_away(schemas: Schemas) -> None:
    schema = schemas.take()
    with psycopg.connect(schemas.address(schema), autocommit=True) as connection:
        connection.execute("INSERT INTO taskmill_node (name) VALUES ('far:1')")
    schemas.give_back(schema)
    other = schemas.take()
    assert other != schema
    schemas.give_back(other)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_a_path_is_one_store_and_each_memory_another(engine: Engine, tmp_path: Path) -> None:
    assert engine.is_postgres
    await _use(tmp_path / "a.db")
    counts: list[int] = []
    for store in (tmp_path / "a.db", str(tmp_path / "a.db"), name_of(tmp_path / "a.db"), tmp_path / "b.db", ":memory:"):
        async with Scheduler(store, domains=[domain]) as scheduler:
            counts.append(await scheduler.count())
            await scheduler.submit(work.prepare(1))
    assert counts == [1, 2, 3, 0, 0]
    assert list(tmp_path.iterdir()) == []


async def test_the_next_store_takes_over_the_sessions_and_nothing_else_of_the_last(schemas: Schemas) -> None:
    schema = schemas.take()
    address = schemas.address(schema)

    async def session() -> tuple[int, object]:
        store = PostgresStore(address, "full", SystemClock())
        await store.open()
        writing = store._writer.session
        assert writing is not None
        found = writing.raw
        for setting in ("enable_seqscan", "synchronous_commit", "taskmill.odd"):
            told = found.execute("SELECT current_setting(%s, true)", (setting,)).fetchone()
            assert told in [("off",), ("on",), ("",), (None,)], "the odd value of the last store is gone"
        number = found.info.backend_pid
        found.execute("SET taskmill.odd = 'odd'")
        found.execute("LISTEN odd")
        found.execute("SELECT pg_advisory_lock(7)")
        await store.close()
        assert found.closed
        with pytest.raises(psycopg.OperationalError):
            found.execute("SELECT 1")
        return number, found

    first, again = await session(), await session()
    assert first[0] == again[0], "the session is the same"
    assert first[1] is not again[1], "the connection is another"
    with psycopg.connect(address, autocommit=True) as connection:
        locks = connection.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = %s", (first[0],))
        assert locks.fetchall() == []
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", (first[0],))
    assert (await session())[0] != first[0], "a session that the server has ended is not used"
    schemas.give_back(schema)
