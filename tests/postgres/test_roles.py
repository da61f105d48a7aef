"""Roles as the documentation grants them: each may submit, run or read, and nothing more."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from taskmill import Domain, HistoryRecord, Scheduler, StoreError, Submission
from taskmill.core.clock import SystemClock
from taskmill.cron import Cron
from taskmill.store.postgres.store import PostgresStore
from tests.acceptance.command_line import taskmill
from tests.postgres.keeper import Server
from tests.postgres.server import SUPERUSER, address
from tests.store.contract.samples import claim

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run-on-postgresql.md"
LONG = 20

domain = Domain("d")


@domain.task
async def work(n: int = 0) -> int:
    """Return the argument."""
    return n


class Places:
    """Addresses of the queue for each role."""

    def __init__(self, server: Server) -> None:
        self._admin = address(server.folder)

    def of(self, role: str) -> str:
        return f"{self._admin.replace(SUPERUSER + '@', role + '@')}&options=-csearch_path%3Dqueue"

    def run(self, statements: str) -> None:
        with psycopg.connect(self._admin, autocommit=True) as connection:
            connection.execute(statements.encode())


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    server = Server()
    try:
        made = Places(server)
        before, after = re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        made.run(before)
        # The owner's first scheduler creates the tables.
        done = taskmill("nodes", made.of("queue_owner"))
        assert "taskmill's tables are not in it" in done.stderr
        asyncio.run(_open_once(made.of("queue_owner")))
        made.run(after)
        made.run("".join(f"CREATE ROLE {role[6:]} LOGIN IN ROLE {role};" for role in ROLES))
        yield made
    finally:
        server.stop()


ROLES = ("queue_reader", "queue_producer", "queue_worker")


async def _open_once(store: str) -> None:
    async with Scheduler(store):
        pass


async def test_a_producer_submits_and_a_worker_runs_and_both_see_the_result(places: Places) -> None:
    async with (
        Scheduler(places.of("producer"), domains=[domain]) as producer,
        Scheduler(places.of("worker"), domains=[domain], cron=[Cron("daily", "0 0 * * *", dict, 1)]) as worker,
    ):
        plain = await producer.submit(work.prepare(1))
        keyed = await producer.submit(work.options(key="k", tags={"a": "b"}, label="l").prepare(2))
        again = await producer.submit(work.options(key="k").prepare(3))
        assert again.id == keyed.id
        later = await producer.submit(work.options(run_after=0.05).prepare(4))
        dependent = await producer.submit(work.options(depends_on=[plain], priority=1).prepare(5))
        series = await producer.submit(work.options(every=3600).prepare(6))
        async with worker.running():
            assert [await handle.result(timeout=LONG) for handle in (plain, keyed, later, dependent, series)] == [
                *(1, 2, 4, 5, 6)
            ]
            child = await worker.submit(work.options(key="s").prepare(1))
            await child.result(timeout=LONG)
            await worker.pause()
            await worker.resume()
        assert isinstance(await producer.get(plain.id), HistoryRecord)
        held = await worker.submit(work.options(key="x", run_after=3600).prepare(7))
        await worker.submit(work.options(key="x", run_after=3600, on_duplicate="supersede").prepare(8))
        assert (await worker.get(held.id)).id == held.id
        for task in await worker.tasks():
            await worker.cancel(task.id)


async def test_a_producer_in_its_own_transaction(places: Places) -> None:
    async with Scheduler(places.of("producer"), domains=[domain]) as producer:
        with psycopg.connect(places.of("producer")) as connection:
            kept = await producer.submit(work.prepare(1), connection=connection)
            keyed = await producer.submit(work.options(key="own").prepare(1), connection=connection)
        assert {kept.id, keyed.id} <= {task.id for task in await producer.tasks()}


async def test_a_producer_can_neither_dispatch_nor_claim_nor_cancel(places: Places) -> None:
    async with Scheduler(places.of("producer"), domains=[domain]) as producer:
        handle = await producer.submit(work.options(key="held").prepare())
        with pytest.raises(StoreError, match="may not do that: permission denied for table"):
            await producer.run_until_idle(timeout=LONG)
        with pytest.raises(StoreError, match="may not do that: permission denied"):
            await producer.cancel(handle.id)
        with pytest.raises(StoreError, match="may not do that: permission denied"):
            await producer.submit(work.options(key="held", on_duplicate="supersede").prepare())
        with pytest.raises(StoreError, match="may not do that: permission denied"):
            await producer.pause()
        assert (await producer.get(handle.id)).attempt == 0
    store = PostgresStore(places.of("producer"), "full", SystemClock())
    await store.open()
    try:
        with pytest.raises(StoreError, match="permission denied for table taskmill_task"):
            await claim(store, handle.id)
    finally:
        await store.close()


async def test_a_reader_looks_and_nothing_else(places: Places) -> None:
    async with Scheduler(places.of("producer"), domains=[domain]) as producer:
        handle = await producer.submit(work.prepare())
    # The program that runs tasks elsewhere may read with this role.
    async with Scheduler(places.of("reader"), domains=[domain]) as reader:
        picture = await reader.snapshot()
        assert picture.counts["pending"] >= 1
        assert handle.id in [task.id for task in await reader.tasks()]
        assert (await reader.explain(handle.id)).status == "pending"
        await reader.history()
        with pytest.raises(StoreError, match="may not do that: permission denied for table taskmill_writing"):
            await reader.submit(work.prepare())
        with pytest.raises(StoreError, match="may not do that: permission denied"):
            await reader.cancel(handle.id)
    for command in (["status"], ["ls"], ["show", handle.id], ["why", handle.id], ["nodes"], ["doctor"], ["groups"]):
        done = taskmill(command[0], places.of("reader"), *command[1:])
        assert done.returncode == 0, done.stderr
    refused = taskmill("cancel", places.of("reader"), handle.id)
    assert refused.returncode == 2
    assert "permission denied" in refused.stderr


@pytest.mark.parametrize("role", ["reader", "producer", "worker"])
async def test_only_the_owner_makes_or_changes_tables(places: Places, role: str) -> None:
    for statement in (
        "CREATE TABLE queue.mine (n int)",
        "ALTER TABLE queue.taskmill_task ADD COLUMN n int",
        "DROP TABLE queue.taskmill_history",
        "TRUNCATE queue.taskmill_task",
        "INSERT INTO queue.taskmill_schema VALUES (9, 'x')",
    ):
        with psycopg.connect(places.of(role)) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement.encode())


async def test_missing_tables_are_not_made_by_a_role_that_may_not(places: Places) -> None:
    elsewhere = places.of("worker").replace("%3Dqueue", "%3Dother")
    places.run("CREATE SCHEMA IF NOT EXISTS other; GRANT USAGE ON SCHEMA other TO queue_reader")
    with pytest.raises(StoreError, match="may not do that: permission denied for schema other"):
        await _open_once(elsewhere)


async def test_a_role_that_submits_by_name_needs_no_more(places: Places) -> None:
    async with Scheduler(places.of("worker"), domains=[domain]) as worker, worker.running():
        pass  # it publishes its types
    async with Scheduler(places.of("producer")) as producer:
        handle = await producer.submit(Submission("d::work", {"n": 1}))
        assert (await producer.get(handle.id)).type == "d::work"
