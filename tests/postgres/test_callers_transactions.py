"""Tasks that are submitted in the caller's own transaction, on an asynchronous connection."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from taskmill import Domain, DuplicateTask, Scheduler, Submission
from taskmill.blocking import Scheduler as BlockingScheduler
from taskmill.errors import StoreBusy, SubmissionError
from taskmill.store.postgres import callers

Connection = psycopg.AsyncConnection[Any]


def _domain() -> Domain:
    domain = Domain("d")

    @domain.task
    async def work(n: int) -> int:
        return n

    return domain


def _work(n: int, **options: Any) -> Submission:
    return Submission("d::work", {"n": n}, **options)


@pytest.fixture
async def scheduler(postgres_store: str) -> AsyncIterator[Scheduler]:
    async with Scheduler(postgres_store, domains=[_domain()]) as scheduler:
        yield scheduler


@pytest.fixture
async def connection(postgres_store: str) -> AsyncIterator[Connection]:
    async with await psycopg.AsyncConnection.connect(postgres_store) as connection:
        await connection.execute("CREATE TABLE orders (n int)")
        await connection.commit()
        yield connection


async def _orders(connection: Connection) -> int:
    row = await (await connection.execute("SELECT count(*) FROM orders")).fetchone()
    assert row is not None
    count: int = row[0]
    return count


async def test_the_task_exists_when_the_caller_commits_and_runs_soon(
    scheduler: Scheduler, connection: Connection
) -> None:
    async with scheduler.running():
        await connection.execute("INSERT INTO orders VALUES (1)")
        handles = await scheduler.submit_many([_work(1), _work(2)], connection=connection)
        keyed = await scheduler.submit(_work(3, key="k"), connection=connection)
        again = await scheduler.submit(_work(4, key="k"), connection=connection)
        before = await scheduler.count()
        await connection.commit()
        since = time.monotonic()
        results = [await handle.result(timeout=30) for handle in (*handles, keyed)]
        took = time.monotonic() - since
    assert before == 0
    assert results == [1, 2, 3]
    assert (again.kind, again.id) == ("duplicate", keyed.id)
    assert took < 5


async def test_what_is_rolled_back_never_existed(scheduler: Scheduler, connection: Connection) -> None:
    await connection.execute("INSERT INTO orders VALUES (1)")
    await scheduler.submit(_work(1, key="k"), connection=connection)
    await connection.rollback()
    assert await scheduler.find("d::work", "k") is None
    assert await _orders(connection) == 0
    assert (await scheduler.submit(_work(1, key="k"))).kind == "inserted"


async def test_a_refusal_leaves_the_callers_transaction_as_it_was(scheduler: Scheduler, connection: Connection) -> None:
    await scheduler.submit(_work(1, key="k"))
    await connection.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(DuplicateTask):
        await scheduler.submit(_work(2, key="k", on_duplicate="reject"), connection=connection)
    with pytest.raises(SubmissionError, match="too long for an index"):
        await scheduler.submit(_work(2, key=random.Random(1).randbytes(2000).hex()), connection=connection)
    await connection.execute("INSERT INTO orders VALUES (2)")
    await connection.commit()
    assert await _orders(connection) == 2
    assert await scheduler.count() == 1


async def test_a_connection_in_autocommit_mode_commits_at_once(scheduler: Scheduler, postgres_store: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_store, autocommit=True) as connection:
        await scheduler.submit(_work(1), connection=connection)
        assert await scheduler.count() == 1
        async with connection.transaction():
            await scheduler.submit(_work(2), connection=connection)
            assert await scheduler.count() == 1
        assert await scheduler.count() == 2


async def test_the_loop_continues_while_others_keep_the_caller_waiting(
    scheduler: Scheduler, connection: Connection, postgres_store: str
) -> None:
    with psycopg.connect(postgres_store) as other:
        other.execute("LOCK TABLE taskmill_writing IN EXCLUSIVE MODE")
        waiting = asyncio.create_task(scheduler.submit(_work(1, key="k"), connection=connection))
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert not waiting.done()
        other.rollback()
        await waiting
    await connection.commit()
    assert await scheduler.count() == 1


async def test_a_cancelled_caller_keeps_a_working_connection(
    scheduler: Scheduler, connection: Connection, postgres_store: str
) -> None:
    await connection.execute("INSERT INTO orders VALUES (1)")
    with psycopg.connect(postgres_store) as other:
        other.execute("LOCK TABLE taskmill_writing IN EXCLUSIVE MODE")
        waiting = asyncio.create_task(scheduler.submit(_work(1, key="k"), connection=connection))
        await asyncio.sleep(0.2)
        waiting.cancel()
        await asyncio.sleep(0.1)
        other.rollback()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    await connection.execute("INSERT INTO orders VALUES (2)")
    await connection.commit()
    assert await _orders(connection) == 2
    assert await scheduler.count() == 0


async def test_connections_that_cannot_be_used_are_refused(
    scheduler: Scheduler, connection: Connection, postgres_server: str
) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_server) as elsewhere:
        with pytest.raises(SubmissionError, match="another server, database or schema"):
            await scheduler.submit(_work(1), connection=elsewhere)
    with pytest.raises(SubmissionError, match="connection is closed"):
        await scheduler.submit(_work(1), connection=elsewhere)
    with pytest.raises(SubmissionError, match=r"psycopg\.Connection or a psycopg\.AsyncConnection"):
        await scheduler.submit(_work(1), connection=object())
    with pytest.raises(SubmissionError, match="belongs to its event loop"):
        scheduler.submit_through(connection, await scheduler.resolve([_work(1)]))


def test_code_without_a_loop_learns_which_kind_it_can_use(postgres_store: str) -> None:
    async def connect() -> Connection:
        return await psycopg.AsyncConnection.connect(postgres_store)

    with BlockingScheduler(postgres_store, domains=[_domain()]) as scheduler, asyncio.Runner() as runner:
        connection = runner.run(connect())
        with pytest.raises(SubmissionError, match=r"give a psycopg\.Connection"):
            scheduler.submit(_work(1), connection=connection)
        runner.run(connection.close())


@pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
async def test_a_transaction_that_sees_the_past_cannot_know_the_holder_of_a_key(
    scheduler: Scheduler, connection: Connection, level: psycopg.IsolationLevel
) -> None:
    """The holder that it sees may have ended; then nothing would be stored, and nothing would run."""
    await connection.set_isolation_level(level)
    await scheduler.submit(_work(1, key="k"))
    await _orders(connection)
    await scheduler.run_until_idle(timeout=30)
    with pytest.raises(SubmissionError, match="READ COMMITTED only"):
        await scheduler.submit(_work(2, key="k"), connection=connection)
    await scheduler.submit(_work(3), connection=connection)
    await connection.commit()
    assert await scheduler.count() == 1


async def test_no_caller_waits_forever_for_another_callers_transaction(
    scheduler: Scheduler, connection: Connection, postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "PATIENCE_MS", 100)
    await connection.execute("INSERT INTO orders VALUES (1)")
    async with await psycopg.AsyncConnection.connect(postgres_store) as other:
        await scheduler.submit(_work(1, key="k"), connection=other)
        async with asyncio.timeout(30):
            with pytest.raises(StoreBusy, match="for too long"):
                await scheduler.submit(_work(2, key="l"), connection=connection)
        await other.rollback()
    await scheduler.submit(_work(2, key="l"), connection=connection)
    row = await (await connection.execute("SHOW lock_timeout")).fetchone()
    await connection.commit()
    assert await _orders(connection) == 1
    assert await scheduler.count() == 1
    assert row == ("0",)


async def test_callers_that_wait_keep_no_thread_from_the_one_they_wait_for(
    scheduler: Scheduler, connection: Connection, postgres_store: str
) -> None:
    """Even if the loop has one thread: the transaction they wait for may store more before it commits."""
    with ThreadPoolExecutor(1) as executor:
        asyncio.get_running_loop().set_default_executor(executor)
        await scheduler.submit(_work(1, key="k"), connection=connection)
        async with await psycopg.AsyncConnection.connect(postgres_store) as other:
            waiting = asyncio.create_task(scheduler.submit(_work(2, key="k"), connection=other))
            await asyncio.sleep(0.2)
            async with asyncio.timeout(20):
                await scheduler.submit(_work(3, key="l"), connection=connection)
                await connection.commit()
                assert (await waiting).kind == "duplicate"


@pytest.mark.parametrize("keys", [("a", "b", "c"), ("a", "a", "b")], ids=["own_keys", "a_shared_key"])
async def test_several_submissions_may_share_a_connection_at_the_same_time(
    scheduler: Scheduler, connection: Connection, keys: Sequence[str]
) -> None:
    await connection.execute("INSERT INTO orders VALUES (1)")
    submissions = [_work(number, key=key) for number, key in enumerate(keys)]
    handles = await asyncio.gather(*(scheduler.submit(each, connection=connection) for each in submissions))
    await connection.commit()
    assert await _orders(connection) == 1
    assert {task.id for task in await scheduler.tasks()} == {handle.id for handle in handles}
    assert len({handle.id for handle in handles}) == len(set(keys))
