"""Nodes that write at once keep exact numbers of tasks, and merge them without losing or repeating a change."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import pairwise

import psycopg
import pytest

from taskmill import Context, Domain, InvalidState, Retry, Scheduler, SubmissionError
from taskmill.core.clock import SystemClock
from taskmill.store.postgres import load_upkeep
from taskmill.store.postgres import migrate as postgres_migrate
from taskmill.store.postgres.connection import WRITING, RawConnection, connect
from taskmill.store.postgres.heartbeat import Heartbeat
from taskmill.store.postgres.load_upkeep import LoadUpkeep
from taskmill.store.postgres.migrate import migrate
from taskmill.store.postgres.session import Session
from taskmill.store.postgres.store import PostgresStore
from tests.postgres.server import SUPERUSER
from tests.repetition import seeds
from tests.store.contract.samples import NOW, add, claim, new_task

domain = Domain("d", retry=Retry.constant(1, 0))
NODES = 3
STEPS = 60

WRONG = """
SELECT group_name, type, status, sum(tasks) FROM (
    SELECT group_name, type, status, tasks FROM taskmill_load
    UNION ALL
    SELECT group_name, type, status, -1 FROM taskmill_task WHERE status <> 'running'
) AS both_sides GROUP BY group_name, type, status HAVING sum(tasks) <> 0
"""
"""The counters that differ from the number of rows, in one snapshot."""


@domain.task
async def work(ctx: Context, fails: bool = False) -> None:
    if fails and not ctx.task.retries:
        raise ValueError("once")


@domain.task(max_children=2)
async def parent(ctx: Context, children: int) -> None:
    await ctx.spawn_many([work.options(group="child").prepare() for _ in range(children)])


@pytest.fixture
def database(postgres_store: str) -> Iterator[RawConnection]:
    with connect(postgres_store, WRITING) as connection:
        migrate(connection, "test")
        yield connection


def rows(connection: RawConnection) -> int:
    row = connection.execute("SELECT count(*) FROM taskmill_load").fetchone()
    assert row is not None
    return int(row[0])


async def _step(scheduler: Scheduler, chance: random.Random) -> None:
    group = chance.choice(["a", "b", "c"])
    active = await scheduler.tasks(limit=50)
    task = chance.choice(active) if active else None
    options: dict[str, object] = {"group": group}
    if chance.random() < 0.3:
        options |= {"key": chance.choice("xyz"), "on_duplicate": chance.choice(["supersede", "requeue", "skip"])}
    if chance.random() < 0.3:
        options["run_after"] = chance.choice([0.01, 3600])
    if chance.random() < 0.2:
        options["ttl"] = 0.01
    if task is not None and chance.random() < 0.3:
        options["depends_on"] = [task.id]

    async def submit() -> None:
        await work.options(**options).submit(chance.random() < 0.3)  # type: ignore[arg-type]

    steps: list[Callable[[], Awaitable[object]]] = [
        submit,
        submit,
        lambda: scheduler.submit_many([work.options(group=group).prepare() for _ in range(20)]),
        lambda: parent.options(group=group).submit(chance.randrange(1, 5)),
        scheduler.group(group).pause,
        scheduler.group(group).resume,
    ]
    if task is not None:
        steps += [lambda: scheduler.cancel(task.id), lambda: scheduler.set_priority(task.id, chance.randrange(256))]
    with contextlib.suppress(InvalidState, SubmissionError, LookupError):
        await chance.choice(steps)()


async def _watch(address: str, until: asyncio.Event) -> int:
    """Compare the counters with the rows again and again; return how often."""
    looks = 0
    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
        while not until.is_set():
            wrong = await (await connection.execute(WRONG)).fetchall()
            assert wrong == []
            looks += 1
    return looks


@pytest.mark.parametrize("seed", seeds(1))
async def test_nodes_that_write_at_once_keep_the_numbers_of_the_rows(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    # Every transaction checks the table, and most of them merge it.
    monkeypatch.setattr(load_upkeep, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(load_upkeep, "FEW_ROWS", 3)
    done = asyncio.Event()
    async with AsyncExitStack() as stack:
        schedulers = [Scheduler(postgres_store, domains=[domain], max_concurrency=4) for _ in range(NODES)]
        for scheduler in schedulers:
            await stack.enter_async_context(scheduler)
            await stack.enter_async_context(scheduler.running())
        watching = asyncio.create_task(_watch(postgres_store, done))

        async def walk(number: int) -> None:
            chance = random.Random(seed * NODES + number)
            for _ in range(STEPS):
                await _step(schedulers[number], chance)

        await asyncio.gather(*map(walk, range(NODES)))
        done.set()
        assert await watching > 0
        picture = await schedulers[0].snapshot()
        assert picture.counts["scheduled"] > 0
    with psycopg.connect(postgres_store) as connection:
        assert connection.execute(WRONG).fetchall() == []


async def test_changes_of_open_transactions_outlast_a_merge_and_those_rolled_back_leave_nothing(
    postgres_store: str, database: RawConnection
) -> None:
    async with Scheduler(postgres_store, domains=[domain]) as scheduler:
        await scheduler.submit_many([work.options(group="g").prepare() for _ in range(5)])
        with psycopg.connect(postgres_store) as kept, psycopg.connect(postgres_store) as undone:
            await scheduler.submit(work.options(group="g").prepare(), connection=kept)
            await scheduler.submit(work.options(group="g").prepare(), connection=undone)
            assert Session(database).execute("fold_load").fetchone() == (1,)
            kept.commit()
            undone.rollback()
        assert rows(database) == 2
        assert database.execute(WRONG).fetchall() == []
        assert (await scheduler.snapshot()).groups["g"].pending == 6


async def test_tasks_of_a_dead_node_are_counted_again(
    postgres_store: str, database: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A heartbeat between the mark and the recovery would bring the node back to life.
    monkeypatch.setattr(Heartbeat, "_beat", lambda *_: None)
    dying, other = (PostgresStore(postgres_store, "full", SystemClock()) for _ in range(2))
    await dying.open()
    await other.open()
    try:
        right = await dying.acquire_dispatch()
        stored = await add(dying, *(new_task(group=f"g{n}") for n in range(3)))
        await claim(dying, *stored)
        assert rows(database) > 0
        assert database.execute("SELECT sum(tasks) FROM taskmill_load").fetchone() == (0,)
        database.execute("UPDATE taskmill_node SET seen_at = '-infinity'")
        await other.recover(NOW)
        assert database.execute("SELECT sum(tasks) FROM taskmill_load").fetchone() == (3,)
        right.release()
    finally:
        await dying.close()
        await other.close()
    assert database.execute(WRONG).fetchall() == []


def test_a_node_that_comes_while_another_merges_does_nothing(postgres_store: str, database: RawConnection) -> None:
    database.execute("INSERT INTO taskmill_load SELECT 'g', 'd::work', 'pending', 1 FROM generate_series(1, 10)")
    with connect(postgres_store, WRITING) as other:
        other.execute("SET lock_timeout = '10ms'")
        with database.transaction():
            assert Session(database).execute("fold_load").fetchone() == (1,)
            assert Session(other).execute("fold_load").fetchone() == (0,)
        assert rows(other) == 1
        assert other.execute("SELECT tasks FROM taskmill_load").fetchall() == [(10,)]


def test_rows_are_merged_when_they_are_many_more_than_numbers(
    database: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_upkeep, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(load_upkeep, "FEW_ROWS", 10)
    session, upkeep = Session(database), LoadUpkeep()
    sizes: list[int] = []
    for n in range(200):
        database.execute("INSERT INTO taskmill_load VALUES (%s, 'd::work', 'pending', 1)", (f"g{n % 20}",))
        upkeep.merge_if_long(session)
        sizes.append(rows(database))
    # The first merge finds only sums; then one is due when there are as many changes, plus ten.
    assert max(sizes) == 20 * 2 + 10
    assert 4 <= sum(later < earlier for earlier, later in pairwise(sizes)) <= 8
    found = database.execute("SELECT group_name, sum(tasks) FROM taskmill_load GROUP BY 1").fetchall()
    assert dict(found) == {f"g{n}": 10 for n in range(20)}


def test_groups_without_tasks_leave_no_rows(database: RawConnection) -> None:
    database.execute(
        "INSERT INTO taskmill_load SELECT 'g' || n, 'd::work', 'pending', change"
        " FROM generate_series(1, 10) AS n, unnest(ARRAY[2, -2]) AS change"
    )
    assert Session(database).execute("fold_load").fetchone() == (0,)
    assert rows(database) == 0


async def test_a_role_that_only_submits_leaves_merging_to_others(
    postgres_store: str, database: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_upkeep, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(load_upkeep, "FEW_ROWS", 0)
    with connect(postgres_store, WRITING) as admin:
        role = "merges_nothing"
        admin.execute(f"DROP ROLE IF EXISTS {role}")
        admin.execute(f"CREATE ROLE {role} LOGIN")
        schema = str(admin.execute("SELECT current_schema()").fetchone()[0])  # type: ignore[index]
        admin.execute(
            f"GRANT USAGE ON SCHEMA {schema} TO {role};"
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};"
            f"GRANT USAGE, UPDATE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {role};"
            f"REVOKE DELETE ON taskmill_load FROM {role}"
        )
        try:
            async with Scheduler(postgres_store.replace(f"{SUPERUSER}@", f"{role}@"), domains=[domain]) as producer:
                for _ in range(4):
                    await producer.submit(work.prepare())
            assert rows(database) == 4
        finally:
            admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_an_older_queue_is_counted_when_it_is_upgraded(postgres_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)
    with connect(postgres_store, WRITING) as connection:
        with monkeypatch.context() as past:
            past.setattr(postgres_migrate, "MIGRATIONS", postgres_migrate.MIGRATIONS[:5])
            past.setattr(postgres_migrate, "NEWEST_VERSION", 5)
            migrate(connection, "test")
        for n in range(50):
            connection.execute(
                "INSERT INTO taskmill_task"
                " (id, type, group_name, status, priority, urgency, payload, created_at, queued_at)"
                " VALUES (%s, 'd::t', %s, %s, 1, 1, '{}', 0, 0)",
                (n, f"g{n % 3}", chance.choice(["pending", "scheduled", "blocked", "running"])),
            )
        migrate(connection, "test")
        stored = connection.execute("SELECT group_name, status FROM taskmill_task WHERE status <> 'running'").fetchall()
        found = connection.execute("SELECT group_name, status, tasks FROM taskmill_load").fetchall()
    assert {row[:2]: row[2] for row in found} == Counter(stored)


async def test_numbers_that_went_wrong_are_counted_again_with_damage(
    postgres_store: str, database: RawConnection
) -> None:
    store = PostgresStore(postgres_store, "full", SystemClock())
    await store.open()
    try:
        await add(store, new_task(group="g"), new_task(group="h"))
        database.execute("INSERT INTO taskmill_load VALUES ('g', 'd::work', 'nonsense', 7)")
        with psycopg.connect(postgres_store) as callers:
            await store.add_within(callers, [new_task(group="g")])
            await store.set_aside(NOW, running=False)
    finally:
        await store.close()
    assert database.execute(WRONG).fetchall() == []
    assert sorted(database.execute("SELECT group_name, tasks FROM taskmill_load")) == [("g", 1), ("g", 1), ("h", 1)]
