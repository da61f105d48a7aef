"""The heartbeat of a node: what must not stop it, and what its own silence must not imply about other nodes."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import threading
from collections.abc import AsyncGenerator, Callable
from datetime import datetime

import psycopg
import pytest

from taskmill.core.clock import SystemClock
from taskmill.errors import StoreError
from taskmill.model.commit import NO_CHANGES
from taskmill.store.postgres import heartbeat, lease
from taskmill.store.postgres.connection import RawConnection
from taskmill.store.postgres.store import PostgresStore
from tests.store.contract.samples import NOW, new_task


@contextlib.asynccontextmanager
async def _node(address: str) -> AsyncGenerator[PostgresStore, None]:
    store = PostgresStore(address, "full", SystemClock())
    await store.open()
    try:
        right = await store.acquire_dispatch()
        yield store
        right.release()
    finally:
        await store.close()


async def _until(happened: Callable[[], bool]) -> bool:
    for _ in range(500):
        if happened():
            return True
        await asyncio.sleep(0.01)
    return False


def _seen_at(connection: psycopg.Connection) -> datetime:
    row = connection.execute("SELECT max(seen_at) FROM taskmill_node").fetchone()
    assert row is not None
    seen_at: datetime = row[0]
    return seen_at


async def test_a_node_beats_in_a_program_with_more_than_a_thousand_open_files(postgres_store: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip("so many files cannot be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    with contextlib.ExitStack() as files:
        for _ in range(1100):
            files.enter_context(open("/dev/null"))
        async with _node(postgres_store):
            with psycopg.connect(postgres_store, autocommit=True) as connection:
                entered = _seen_at(connection)
                assert await _until(lambda: _seen_at(connection) > entered)


async def test_a_number_that_a_crash_has_taken_back_does_not_stop_the_heartbeat(postgres_store: str) -> None:
    """A caller's transaction was open when the server crashed: its number will be given to another transaction."""
    async with _node(postgres_store) as store:
        with (
            psycopg.connect(postgres_store) as callers,
            psycopg.connect(postgres_store, autocommit=True) as connection,
        ):
            entered = _seen_at(connection)
            store._heartbeat.watch("999999999999", NO_CHANGES)
            store.add_through(callers, [new_task()])
            assert await _until(lambda: _seen_at(connection) > entered)
            store._heartbeat.take_changed()
            callers.commit()
            assert await _until(lambda: store._heartbeat.take_changed() is not None)
            assert await _until(lambda: not store._heartbeat._watched)


async def test_a_node_that_has_lost_the_server_declares_no_node_dead(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer may reconnect before the heartbeat, at a time when no node could be seen alive."""

    def connect() -> RawConnection:
        raise StoreError("not yet")

    async with _node(postgres_store), _node(postgres_store) as store:
        heartbeat = store._heartbeat
        assert heartbeat.may_bury
        connect_again, heartbeat._connect = heartbeat._connect, connect
        session = heartbeat._session
        assert session is not None
        with psycopg.connect(postgres_store, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(%s)", (session.raw.info.backend_pid,))
            assert await _until(lambda: heartbeat._lost_at is not None)
            connection.execute("UPDATE taskmill_node SET seen_at = clock_timestamp() - interval '1 hour'")
            with monkeypatch.context() as patched:
                # The server of the tests has not been up for a whole lease.
                patched.setattr(lease, "LEASE", 0.2)
                await store.recover(NOW)
            left = connection.execute("SELECT count(*) FROM taskmill_node").fetchone()
        heartbeat._connect = connect_again
    assert left == (2,)


async def test_a_cancelled_open_leaves_no_thread_and_no_connection(postgres_store: str) -> None:
    async with _node(postgres_store):
        threads = set(threading.enumerate())
        with psycopg.connect(postgres_store, autocommit=True) as connection:
            with connection.transaction():
                # Opening reads this table first, and waits.
                connection.execute("LOCK TABLE taskmill_schema")
                store = PostgresStore(postgres_store, "full", SystemClock())
                opening = asyncio.create_task(store.open())
                await asyncio.sleep(0.1)
                opening.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await opening
        assert await _until(lambda: set(threading.enumerate()) <= threads)


async def test_a_long_transaction_of_its_own_that_holds_its_row_is_not_taken_for_silence(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heartbeat, "ANSWER", 0.3)
    monkeypatch.setattr(heartbeat, "BEAT", 0.1)
    async with _node(postgres_store) as store:
        with (
            psycopg.connect(postgres_store) as writer,
            psycopg.connect(postgres_store, autocommit=True) as connection,
        ):
            writer.execute("SELECT id FROM taskmill_node FOR UPDATE")
            entered, beats = _seen_at(connection), store._heartbeat._beats
            assert await _until(lambda: store._heartbeat._beats >= beats + 5)
            assert _seen_at(connection) == entered
            writer.rollback()
            assert await _until(lambda: _seen_at(connection) > entered)
        assert not store._heartbeat.is_lost
    assert not caplog.records


async def test_a_node_that_is_declared_dead_is_logged(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with _node(postgres_store) as store:
        with psycopg.connect(postgres_store, autocommit=True) as connection:
            connection.execute("INSERT INTO taskmill_node (name, slots, types) VALUES ('far away', 4, '[]')")
        with monkeypatch.context() as short:
            short.setattr(lease, "LEASE", 0.0)
            await store.recover(NOW)
    told = [record.getMessage() for record in caplog.records if "has died" in record.getMessage()]
    assert told == ["node far away has died; its tasks return to the queue"]


async def test_a_node_that_registers_again_does_not_count_its_former_self(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _node(postgres_store) as store:
        with monkeypatch.context() as patch, psycopg.connect(postgres_store) as connection:
            # The heartbeat comes too late to remove the first row.
            patch.setattr(heartbeat.Heartbeat, "_take_leave", lambda _self, _session: None)
            (await store.acquire_dispatch()).release()
            second = await store.acquire_dispatch()
            nodes = connection.execute("SELECT id FROM taskmill_node ORDER BY id").fetchall()
        second.release()
    assert nodes == [(1,), (3,)]
