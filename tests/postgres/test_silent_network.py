"""A network that drops every packet: each call ends, handlers continue, and no task runs on two nodes at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

import psycopg
import pytest

from taskmill import Context, Domain, HistoryRecord, Scheduler, Submission
from taskmill.core.clock import SystemClock
from taskmill.errors import StoreError
from taskmill.model.filters import Filters
from taskmill.model.turn import Look, Turn
from taskmill.store.postgres import connection as connections
from taskmill.store.postgres import lease, writer
from taskmill.store.postgres import store as store_module
from taskmill.store.postgres.session import Session
from taskmill.store.postgres.store import PostgresStore
from tests.postgres.network import Network
from tests.store.contract.samples import NOW, add, claim, new_task

SOON = 15.0
"""Seconds within which a server that does not answer must have been noticed, on a busy machine."""


@pytest.fixture
def network(postgres_store: str) -> Iterator[Network]:
    with Network(postgres_store) as network:
        yield network


async def _happens(what: Sequence[object], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not what:
            await asyncio.sleep(0.01)


@pytest.mark.timeout(120)
async def test_handlers_continue_while_the_network_is_silent_and_finish_under_their_token(network: Network) -> None:
    domain = Domain("d")
    begun: list[object] = []
    go_on = asyncio.Event()

    @domain.task
    async def work(ctx: Context) -> int:
        begun.append(ctx.attempt)
        await go_on.wait()
        return ctx.attempt

    async with Scheduler(network.address, domains=[domain]) as scheduler:
        running = asyncio.create_task(scheduler.run())
        first = await work.submit()
        await _happens(begun)
        network.fall_silent()
        since = time.monotonic()
        late = asyncio.create_task(work.submit())
        with pytest.raises(StoreError):
            await scheduler.count()
        noticed = time.monotonic() - since
        go_on.set()
        await asyncio.sleep(1)
        still_running = not running.done()
        network.speak()
        results = [await first.result(timeout=60), await (await late).result(timeout=60)]
        await scheduler.stop()
        await running
    assert noticed < SOON
    assert still_running
    assert results == [1, 1]
    assert begun == [1, 1]


@pytest.mark.timeout(120)
async def test_a_node_that_hears_nothing_stops_before_another_begins_and_works_again_afterwards(
    network: Network, postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE", 6.0)
    begun: list[tuple[str, int, float]] = []
    stopped: list[float] = []

    def node(name: str, address: str) -> Scheduler:
        domain = Domain("d")

        @domain.task
        async def work(ctx: Context) -> str:
            begun.append((name, ctx.attempt, time.monotonic()))
            if ctx.attempt == 1:
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped.append(time.monotonic())
            return name

        if name == "cut off":

            @domain.task
            async def more() -> str:
                return name

        return Scheduler(address, domains=[domain])

    async with node("cut off", network.address) as far, node("other", postgres_store) as near, far.running():
        handle = await near.submit(Submission("d::work", {}))
        await _happens(begun)
        network.fall_silent()
        async with near.running():
            result = await handle.result(timeout=60)
            record = await near.get(handle.id)
            network.speak()
            again = await (await near.submit(Submission("d::more", {}))).result(timeout=60)
    assert (result, again) == ("other", "cut off")
    assert [(name, attempt) for name, attempt, _ in begun] == [("cut off", 1), ("other", 2)]
    assert stopped[0] < begun[1][2]
    assert isinstance(record, HistoryRecord)


async def test_opening_a_store_that_does_not_answer_fails_soon(network: Network) -> None:
    network.fall_silent()
    since = time.monotonic()
    with pytest.raises(StoreError, match="cannot be reached"):
        async with Scheduler(network.address):
            pytest.fail("the store was opened without a server")
    assert time.monotonic() - since < SOON


async def test_reading_fails_soon_and_works_again_when_the_network_does(network: Network) -> None:
    async with Scheduler(network.address) as scheduler:
        network.fall_silent()
        since = time.monotonic()
        with pytest.raises(StoreError):
            await scheduler.count()
        assert time.monotonic() - since < SOON
        network.speak()
        assert await scheduler.count() == 0


async def test_reading_waits_for_a_server_that_is_away_for_a_moment(network: Network) -> None:
    async with Scheduler(network.address) as scheduler:
        network.is_refusing = True
        network.cut()
        reading = asyncio.create_task(scheduler.count())
        await asyncio.sleep(1)
        waits = not reading.done()
        network.is_refusing = False
        assert await reading == 0
    assert waits


async def test_reading_does_not_wait_forever(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "READER_PATIENCE", 0.5)
    async with Scheduler(network.address) as scheduler:
        network.is_refusing = True
        network.cut()
        since = time.monotonic()
        with pytest.raises(StoreError, match="cannot be reached"):
            await scheduler.count()
        assert 0.5 <= time.monotonic() - since < SOON
        network.is_refusing = False
        assert await scheduler.count() == 0


async def test_waiting_until_idle_ends_in_time_though_the_server_is_away(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SERVER_PATIENCE", 0.2)
    domain = Domain("d")

    @domain.task
    async def work() -> None:
        network.is_refusing = True
        network.cut()

    async with Scheduler(network.address, domains=[domain], shutdown_grace=1) as scheduler:
        await work.submit()
        since = time.monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(scheduler.run_until_idle(timeout=2), 60)
        took = time.monotonic() - since
        network.is_refusing = False
    assert 2 <= took < SOON


async def test_what_a_silent_node_has_locked_is_free_soon(postgres_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.WRITING, "idle_in_transaction_session_timeout", "'1s'")
    store = PostgresStore(postgres_store, "full", SystemClock())
    await store.open()
    try:
        gone = Session(connections.connect(postgres_store, connections.WRITING))
        gone.script("BEGIN; LOCK TABLE taskmill_writing IN EXCLUSIVE MODE")
        (id,) = await asyncio.wait_for(add(store, new_task()), 30)
        assert [task.id for task in await store.tasks(Filters())] == [id]
        gone.raw.close()
    finally:
        await store.close()


def test_every_session_of_ours_has_limits(postgres_store: str) -> None:
    for settings in (connections.WRITING, connections.READING):
        with connections.connect(postgres_store, settings) as connection:
            for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
                assert connection.execute(f"SHOW {name}".encode()).fetchone() not in (None, ("0",))
            assert connection.patience <= connections.PATIENCE


def test_a_call_ends_when_its_time_is_over_and_the_connection_with_it(network: Network) -> None:
    connection = connections.connect(network.address, connections.READING, patience=0.5)
    since = time.monotonic()
    with pytest.raises(psycopg.OperationalError, match="not answered in time"):
        connection.execute("SELECT pg_sleep(10)")
    assert time.monotonic() - since < 5
    assert connection.closed


# Turns whose commit is uncertain


async def test_what_was_claimed_by_a_turn_that_seemed_to_fail_is_returned(postgres_store: str) -> None:
    store = PostgresStore(postgres_store, "full", SystemClock())
    await store.open()
    right = await store.acquire_dispatch()
    try:
        known, unknown = await add(store, new_task(), new_task())
        await claim(store, known, unknown)
        await store.turn(Turn(now=NOW, at_work=[known], look=Look(survey=True, slots=4)))
        found = {task.id: task.status for task in await store.tasks(Filters())}
        assert found == {known: "running", unknown: "pending"}
    finally:
        right.release()
        await store.close()


@pytest.mark.timeout(120)
async def test_nothing_is_forgotten_when_the_server_goes_away_after_a_commit_for_longer_than_the_writer_waits(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SERVER_PATIENCE", 0.5)
    monkeypatch.setattr(store_module, "READER_PATIENCE", 60.0)
    domain = Domain("d")
    runs: list[int] = []

    @domain.task
    async def work(n: int) -> int:
        runs.append(n)
        await asyncio.sleep(0.01)
        return n

    whole = Session.script
    commits = 0

    def script(session: Session, text: str) -> object:
        nonlocal commits
        answer = whole(session, text)
        if text.endswith("COMMIT") and "taskmill_change" in text:
            commits += 1
            if commits % 7 == 0:
                # It is committed, but the node does not get the answer for a while.
                network.fall_silent()
                network.cut()
                raise psycopg.OperationalError("cut off")
        return answer

    async with Scheduler(network.address, domains=[domain], max_concurrency=3) as scheduler:
        handles = await scheduler.submit_many([work.prepare(n) for n in range(40)])
        monkeypatch.setattr(Session, "script", script)

        async def mend() -> None:
            while True:
                # Before a connection without an answer is given up, even on a busy machine.
                await asyncio.sleep(1)
                network.cut()
                network.speak()

        mending = asyncio.create_task(mend())
        async with scheduler.running():
            results = [await handle.result(timeout=90) for handle in handles]
        mending.cancel()
    assert results == list(range(40))
    assert commits >= 7
    assert len(set(runs)) == 40
