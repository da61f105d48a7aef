"""A server that stops and comes back: nothing is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from taskmill import Domain, Scheduler
from taskmill.core.clock import SystemClock
from taskmill.model.attempt import End
from taskmill.model.filters import Filters
from taskmill.model.status import Ending
from taskmill.store.postgres import writer
from taskmill.store.postgres.session import Session
from taskmill.store.postgres.store import PostgresStore
from tests.postgres.keeper import Server
from tests.postgres.server import address
from tests.store.contract.samples import add, claim, commit, new_task


class _Cut:
    """Cuts the connection of the next writing transaction at its commit, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, when: str, kill: Callable[[int], None]) -> None:
        self.happened = 0
        whole = Session.script

        def script(session: Session, text: str) -> Any:
            if not text.endswith("COMMIT") or "taskmill_change" not in text or self.happened:
                return whole(session, text)
            self.happened += 1
            if when == "after":
                whole(session, text)
            kill(session.raw.info.backend_pid)
            # The answer, if there was one, is lost.
            return whole(session, "SELECT 1")

        monkeypatch.setattr(Session, "script", script)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_commit_that_is_cut_off_is_done_once(
    postgres_store: str, postgres_server: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def kill(process: int) -> None:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", (process,))

    store = PostgresStore(postgres_store, "full", SystemClock())
    await store.open()
    try:
        cut = _Cut(monkeypatch, when, kill)
        (id,) = await add(store, new_task('{"n":1}'))
        assert cut.happened == 1
        assert [task.id for task in await store.tasks(Filters())] == [id]
    finally:
        await store.close()


async def test_reading_continues_with_another_connection(postgres_store: str, postgres_server: str) -> None:
    store = PostgresStore(postgres_store, "full", SystemClock())
    await store.open()
    try:
        (id,) = await add(store, new_task())
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", (store._reading.raw.info.backend_pid,))
        assert [task.id for task in await store.tasks(Filters())] == [id]
    finally:
        await store.close()


async def test_a_restart_of_the_server_loses_and_repeats_nothing(own_server: Server) -> None:
    domain = Domain("d")
    runs: Counter[int] = Counter()
    tasks = 300
    half_way = asyncio.Event()

    @domain.task
    async def work(n: int) -> int:
        runs[n] += 1
        if len(runs) == tasks // 2:
            half_way.set()
        await asyncio.sleep(0.001)
        return n

    async with Scheduler(address(own_server.folder), domains=[domain], max_concurrency=5) as scheduler:
        handles = await scheduler.submit_many([work.prepare(n) for n in range(tasks)])
        async with scheduler.running():
            await half_way.wait()
            await asyncio.to_thread(own_server.halt)
            late = asyncio.create_task(work.submit(tasks))
            await asyncio.to_thread(own_server.start)
            handles.append(await late)
            results = [await handle.result(timeout=60) for handle in handles]
        counts = (await scheduler.snapshot()).counts
    assert results == list(range(tasks + 1))
    assert runs == Counter(range(tasks + 1))
    assert (counts["completed"], counts["running"], counts["pending"]) == (tasks + 1, 0, 0)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("others", [False, True])
async def test_the_number_of_a_transaction_that_a_crash_has_undone_may_be_another_ones_afterwards(
    own_server: Server, monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    """The numbers of open transactions are reused after a crash, so a number alone proves nothing."""
    monkeypatch.setattr(writer, "SERVER_PATIENCE", 5.0)
    numbers: list[int] = []

    def crash(_: int) -> None:
        own_server.crash()
        own_server.start()
        with psycopg.connect(address(own_server.folder), autocommit=True) as connection:
            while others and (not numbers or len(numbers) < 200):
                numbers.append(connection.execute("SELECT pg_current_xact_id()::text").fetchone()[0])  # type: ignore[index]

    store = PostgresStore(address(own_server.folder), "full", SystemClock())
    await store.open()
    try:
        cut = _Cut(monkeypatch, "before", crash)
        (id,) = await add(store, new_task('{"n":1}'))
        assert cut.happened == 1
        assert [task.id for task in await store.tasks(Filters())] == [id]
    finally:
        await store.close()


@pytest.mark.timeout(120)
async def test_a_crash_of_the_server_forgets_no_claim_and_no_ending_whatever_the_durability() -> None:
    """Handlers outlive the crash: a lost claim would run twice at once, and a lost ending would be running forever."""
    server = Server({"wal_writer_delay": "10s"})
    store = PostgresStore(address(server.folder), "process", SystemClock())
    await store.open()
    right = await store.acquire_dispatch()
    try:
        first, second = await add(store, new_task(), new_task())
        claimed = await claim(store, first, second)
        await commit(store, claimed[0], End(Ending.COMPLETED))
        server.crash()
        server.start()
        (left,) = await store.tasks(Filters())
        (done,) = await store.history(Filters())
    finally:
        right.release()
        await store.close()
        server.stop()
    assert (left.id, left.status, left.attempt) == (second, "running", 1)
    assert (done.id, done.ending) == (first, "completed")


async def test_a_connection_to_a_server_that_may_only_read_is_given_up(postgres_store: str) -> None:
    """After a failover the old address may lead to a standby for a moment, and a session would stay there."""
    store = PostgresStore(postgres_store, "full", SystemClock())
    await store.open()
    try:
        session = store._writer.session
        assert session is not None
        session.raw.execute("SET default_transaction_read_only = on")
        (id,) = await add(store, new_task())
        assert [task.id for task in await store.tasks(Filters())] == [id]
    finally:
        await store.close()
