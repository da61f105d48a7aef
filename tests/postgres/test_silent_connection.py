"""One connection of a node falls silent while the server answers on the others: only its call is given up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import psycopg
import pytest

from taskmill.core.clock import SystemClock
from taskmill.errors import StoreBusy
from taskmill.model.filters import Filters
from taskmill.store.postgres import heartbeat, session, writer
from taskmill.store.postgres.connection import RawConnection
from taskmill.store.postgres.store import PostgresStore
from tests.postgres.keeper import Server
from tests.postgres.network import Network
from tests.postgres.pooler import Pooler
from tests.postgres.server import SUPERUSER, address
from tests.store.contract.samples import add, new_task

SOON = 20.0
"""Seconds within which a call must have been given up and repeated, well under a lease."""

OpenThrough = Callable[[str], Awaitable[PostgresStore]]


@pytest.fixture
def network(postgres_store: str) -> Iterator[Network]:
    with Network(postgres_store) as network:
        yield network


@pytest.fixture
async def open_store() -> AsyncIterator[OpenThrough]:
    opened: list[PostgresStore] = []

    async def open_store(address: str) -> PostgresStore:
        store = PostgresStore(address, "full", SystemClock())
        await store.open()
        opened.append(store)
        return store

    yield open_store
    for store in opened:
        await store.close()


def _writing(store: PostgresStore) -> RawConnection:
    assert store._writer.session is not None
    return store._writer.session.raw


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the timeouts from seconds to fractions of a second."""
    monkeypatch.setattr(session, "UNHEARD", 0.5)
    monkeypatch.setattr(session, "NOTHING_TO_DO", 0.2)
    monkeypatch.setattr(heartbeat, "BEAT", 0.1)


@pytest.mark.parametrize("after", [None, b"INSERT INTO taskmill_commit"], ids=["nothing is heard", "it was committed"])
async def test_a_submission_on_a_connection_that_fell_silent_is_stored_once_and_soon(
    network: Network, open_store: OpenThrough, after: bytes | None
) -> None:
    store = await open_store(network.address)
    beating = store._heartbeat._session
    network.silence(_writing(store), after)
    since = time.monotonic()
    (id,) = await asyncio.wait_for(add(store, new_task()), 60)
    assert time.monotonic() - since < SOON
    assert [task.id for task in await store.tasks(Filters())] == [id]
    assert store._heartbeat._session is beating, "the server answered the heartbeats all the time"


@pytest.mark.usefixtures("impatient")
async def test_reading_continues_when_its_connection_has_fallen_silent(
    network: Network, open_store: OpenThrough
) -> None:
    store = await open_store(network.address)
    await add(store, new_task())
    network.silence(store._reading.raw)
    assert await asyncio.wait_for(store.count(Filters()), SOON) == 1


@pytest.mark.usefixtures("impatient")
async def test_a_statement_that_takes_its_time_is_waited_for(open_store: OpenThrough, postgres_store: str) -> None:
    store = await open_store(postgres_store)
    before = _writing(store)
    with psycopg.connect(postgres_store) as other:
        other.execute("LOCK TABLE taskmill_writing IN EXCLUSIVE MODE")
        adding = asyncio.create_task(add(store, new_task()))
        # Many times as long as a silent connection is waited for.
        await asyncio.sleep(4)
        assert not adding.done()
    (id,) = await asyncio.wait_for(adding, SOON)
    assert [task.id for task in await store.tasks(Filters())] == [id]
    assert _writing(store) is before


@pytest.mark.usefixtures("impatient")
async def test_a_role_that_may_not_see_other_sessions_waits_and_sends_heartbeats(
    own_server: Server, open_store: OpenThrough
) -> None:
    everything = address(own_server.folder)
    with psycopg.connect(everything, autocommit=True) as admin:
        admin.execute("CREATE ROLE ann LOGIN; CREATE SCHEMA ann AUTHORIZATION ann")
        admin.execute("REVOKE SELECT ON pg_stat_activity FROM PUBLIC")
        store = await open_store(everything.replace(f"{SUPERUSER}@", "ann@"))
        beating = store._heartbeat._session
        admin.execute("BEGIN; LOCK TABLE ann.taskmill_writing IN EXCLUSIVE MODE")
        adding = asyncio.create_task(add(store, new_task()))
        await asyncio.sleep(2)
        admin.execute("COMMIT")
        await asyncio.wait_for(adding, SOON)
    assert store._heartbeat._session is beating


@pytest.mark.usefixtures("impatient")
async def test_a_connection_through_a_pooler_that_fell_silent_is_given_up_too(
    postgres_store: str, open_store: OpenThrough
) -> None:
    with Pooler(postgres_store, size=4) as pooler, Network(pooler.address) as network:
        store = await open_store(network.address)
        await add(store, new_task())
        network.silence(_writing(store), b"INSERT INTO taskmill_commit")
        await asyncio.wait_for(add(store, new_task()), SOON)
        network.silence(store._reading.raw)
        assert await asyncio.wait_for(store.count(Filters()), SOON) == 2
        left_behind = pooler.left_behind
    assert left_behind == []


@pytest.mark.usefixtures("impatient")
async def test_a_statement_that_takes_its_time_behind_a_pooler_is_waited_for(
    postgres_store: str, open_store: OpenThrough
) -> None:
    with Pooler(postgres_store, size=4) as pooler:
        store = await open_store(pooler.address)
        before = _writing(store)
        with psycopg.connect(postgres_store) as other:
            other.execute("LOCK TABLE taskmill_writing IN EXCLUSIVE MODE")
            adding = asyncio.create_task(add(store, new_task()))
            await asyncio.sleep(3)
            assert not adding.done()
        await asyncio.wait_for(adding, SOON)
        assert _writing(store) is before


@pytest.mark.usefixtures("impatient")
async def test_the_caller_gets_an_error_when_every_new_connection_falls_silent_too(
    network: Network, open_store: OpenThrough, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SERVER_PATIENCE", 1.0)
    store = await open_store(network.address)
    connect = store._writer._connect

    def connect_and_fall_silent() -> RawConnection:
        # As on a network path that drops large packets.
        raw = connect()
        network.silence(raw, b"LOCK TABLE taskmill_writing")
        return raw

    monkeypatch.setattr(store._writer, "_connect", connect_and_fall_silent)
    network.silence(_writing(store))
    with pytest.raises(StoreBusy, match="went away"):
        await asyncio.wait_for(add(store, new_task()), SOON)
