"""Two engines, one schema: the same tables, columns and statements, each in its dialect."""

from __future__ import annotations

import asyncio
import os
import random
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from taskmill import Domain, Scheduler
from taskmill.core.clock import SystemClock
from taskmill.errors import ConfigError, SchemaTooNew, StoreError, SubmissionError
from taskmill.model.filters import Filters
from taskmill.store.postgres import migrate as postgres_migrate
from taskmill.store.postgres.connection import WRITING, RawConnection, connect, shown, translated
from taskmill.store.postgres.migrate import NEWEST_VERSION, migrate
from taskmill.store.postgres.session import STATEMENTS
from taskmill.store.postgres.store import PostgresStore
from taskmill.store.sqlite.migrate import migrate as migrate_sqlite
from taskmill.store.sqlite.session import STATEMENTS as SQLITE_STATEMENTS
from tests.store.contract.samples import new_task
from tests.store.fragments import FRAGMENTS

# Tables that only a cluster needs.
MORE_COLUMNS = {"taskmill_task": ["node_id"], "taskmill_tally": ["shard"]}
MORE_TABLES = {"taskmill_node", "taskmill_writing", "taskmill_commit"}
MORE_STATEMENTS = {
    "any_node_is_alive",
    "enter_node",
    "stop_node",
    "leave_node",
    "heartbeat",
    "bury_nodes",
    "has_orphans",
    "news",
    "is_abandoned",
    "transaction_states",
    "machines",
    "names_of_nodes",
    "last_given_id",
    "last_mark",
    "fold_load",
    "fold_tally",
    "forget_marks",
    "nodes_at_work",
    "rows_of_load",
    "health_of_nodes",
}

NOTHING_TO_DO = {
    *(
        "add_to_load",
        "claim",
        "count_anew",
        "delete_active",
        "forget_load",
        "newer",
        "newest",
        "note_moves",
        "rebuild_indexes",
        "tally",
    )
}
NOTHING_ON_SQLITE = {"queued_elsewhere", "claim_fronts", "unclaim_others", "preemption", "ask_to_make_way"}

# Statements that read or write a whole table, rarely, or a small one.
MAY_READ_ALL = {"shift_deadlines", "shift_relative", "shift_waits", "count_load", "queue_state"}
TABLES = ("taskmill_task", "taskmill_history", "taskmill_task_tag", "taskmill_history_tag", "taskmill_dependency")


@pytest.fixture
def database(postgres_store: str) -> Iterator[RawConnection]:
    with connect(postgres_store, WRITING) as connection:
        migrate(connection, "test")
        yield connection


def _columns(database: RawConnection) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for table, column in database.execute(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
        " ORDER BY table_name, ordinal_position"
    ):
        found.setdefault(table, []).append(column)
    return found


def _sqlite_columns() -> dict[str, list[str]]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        migrate_sqlite(connection, ":memory:")
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {
            table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            for table in tables
            if table.startswith("taskmill")
        }
    finally:
        connection.close()


def test_the_tables_of_both_engines_have_the_same_columns(database: RawConnection) -> None:
    ours, theirs = _columns(database), _sqlite_columns()
    assert set(ours) - MORE_TABLES == set(theirs)
    for table, columns in theirs.items():
        more = MORE_COLUMNS.get(table, [])
        assert [column for column in ours[table] if column not in more] == columns, table
        assert set(more) <= set(ours[table]), table


def test_both_engines_have_the_same_indexes(database: RawConnection) -> None:
    rows = database.execute("SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()").fetchall()
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate_sqlite(connection, ":memory:")
    theirs = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
    connection.close()
    assert {name for (name,) in rows if not name.endswith("_pkey")} == {
        name for name in theirs if name.startswith("taskmill")
    }


def test_both_engines_have_the_same_statements() -> None:
    assert set(STATEMENTS) - MORE_STATEMENTS == set(SQLITE_STATEMENTS)
    assert {name for name, text in STATEMENTS.items() if not text} == NOTHING_TO_DO


@pytest.mark.parametrize("name", sorted(set(STATEMENTS) - NOTHING_TO_DO - FRAGMENTS))
def test_a_statement_takes_as_many_parameters_on_both_engines(name: str) -> None:
    if name in MORE_STATEMENTS | NOTHING_ON_SQLITE:
        return
    wanted = {int(n) for n in re.findall(r"\$(\d+)", STATEMENTS[name])}
    given = {int(n) for n in re.findall(r"\?(\d+)", SQLITE_STATEMENTS[name])}
    if name.startswith("insert") and name not in ("insert_edges", "insert_tags"):
        given = {1, 2, 3}  # their ids are taken in the same statement
    assert wanted == given


def test_every_statement_is_understood_and_none_reads_a_whole_table_of_tasks(database: RawConnection) -> None:
    if database.info.server_version < 160000:
        pytest.skip("plans without values are shown since PostgreSQL 16")
    wrong: dict[str, list[str]] = {}
    for name in sorted(set(STATEMENTS) - NOTHING_TO_DO - FRAGMENTS):
        cursor = psycopg.RawCursor(database)
        plan = [row[0] for row in cursor.execute(f"EXPLAIN (GENERIC_PLAN) {STATEMENTS[name]}".encode(), prepare=False)]
        scans = [line for line in plan if (found := re.search(r"Seq Scan on (\w+)", line)) and found[1] in TABLES]
        if scans and name not in MAY_READ_ALL:
            wrong[name] = scans
    assert wrong == {}


@pytest.mark.parametrize("name", ["held_tokens", "note_begun", "unclaim", "report_progress", "note_io"])
def test_tokens_are_looked_up_by_id(database: RawConnection, name: str) -> None:
    """Comparing each token with every running task would take quadratic time."""
    if database.info.server_version < 160000:
        pytest.skip("plans without values are shown since PostgreSQL 16")
    cursor = psycopg.RawCursor(database)
    rows = cursor.execute(f"EXPLAIN (GENERIC_PLAN) {STATEMENTS[name]}".encode(), prepare=False).fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert re.search(r"Index Scan using taskmill_task_pkey on taskmill_task t .*\n +Index Cond: \(id = ", plan), plan


def test_migrating_again_changes_nothing(database: RawConnection) -> None:
    before = _columns(database)
    assert migrate(database, "test") == NEWEST_VERSION
    assert _columns(database) == before


def test_the_holder_of_a_key_is_looked_up_by_type_and_key(database: RawConnection) -> None:
    """A plan made for an empty queue must not compare each given key with every key in a long one."""
    if database.info.server_version < 160000:
        pytest.skip("plans without values are shown since PostgreSQL 16")
    cursor = psycopg.RawCursor(database)
    rows = cursor.execute(f"EXPLAIN (GENERIC_PLAN) {STATEMENTS['key_holders']}".encode(), prepare=False).fetchall()
    plan = "\n".join(row[0] for row in rows)
    for index in ("taskmill_task_key", "taskmill_task_stopping"):
        assert re.search(rf"Index Scan using {index} .*\n +Index Cond: \(\(type = .* AND \(key = ", plan), plan


async def test_a_database_of_an_older_schema_keeps_its_tasks_and_their_order(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(postgres_store, WRITING) as connection, monkeypatch.context() as past:
        past.setattr(postgres_migrate, "MIGRATIONS", postgres_migrate.MIGRATIONS[:1])
        past.setattr(postgres_migrate, "NEWEST_VERSION", 1)
        migrate(connection, "test")
        connection.execute("SELECT taskmill_take_ids(5)")
        connection.execute(
            "INSERT INTO taskmill_task"
            " (id, type, key, group_name, priority, urgency, status, payload, created_at, queued_at)"
            " SELECT n, 'd::work', n::text, '', 128, 128, 'pending', json_build_object('n', n)::text, 7, 7"
            " FROM generate_series(1, 5) AS n"
        )
        connection.execute(
            "UPDATE taskmill_task SET status = 'running', attempt = 1, tags = '{\"a\":\"b\"}',"
            " rerun = json_build_array('{\"n\":200}', NULL::bigint)::text WHERE id = 5"
        )
        connection.execute("INSERT INTO taskmill_task_tag VALUES ('a', 'b', 5)")
    domain, ran = Domain("d"), list[int]()

    @domain.task(on_duplicate="supersede")
    async def work(n: int) -> None:
        ran.append(n)

    async with Scheduler(postgres_store, domains=[domain], max_concurrency=1) as scheduler:
        await work.options(key="2").submit(100)
        await scheduler.run_until_idle()
        assert [record.payload["n"] for record in await scheduler.history(tags={"a": "b"})] == [200, 5]
    assert ran == [1, 100, 3, 4, 5, 200]


def test_a_newer_schema_is_refused_and_left_alone(database: RawConnection) -> None:
    database.execute("INSERT INTO taskmill_schema VALUES (99, 'later')")
    with pytest.raises(SchemaTooNew, match="has schema 99"):
        migrate(database, "test")


def test_a_server_that_is_not_there_is_said_in_one_sentence() -> None:
    with pytest.raises(StoreError, match="cannot be reached"):
        connect("postgresql://nobody@/none?host=/nonexistent", WRITING)


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise ImportError('not here')")
    done = subprocess.run(
        [sys.executable, "-c", "from taskmill import Scheduler; Scheduler('postgresql:///')"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "taskmill.errors.ConfigError: " in done.stderr
    assert "install taskmill[postgres]" in done.stderr


def test_a_password_is_never_shown() -> None:
    whole = "postgresql://ann:secret@db.example:5433/app?sslmode=require&password=secret&notifications=off"
    assert shown(whole) == "postgresql://ann@db.example:5433/app?sslmode=require&password=***"
    with pytest.raises(ConfigError) as refused:
        shown("postgresql://ann:se cret@db.example/app")
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "POSTGRESQL", "mysql", " postgresql"])
def test_an_address_that_is_not_known_is_not_taken_for_a_file(scheme: str) -> None:
    with pytest.raises(ConfigError, match="store must be a file name, ':memory:' or 'postgresql://") as refused:
        Scheduler(f"{scheme}://ann:secret@db.example/app")
    assert "secret" not in str(refused.value)


async def test_a_server_that_refuses_says_what_to_do(postgres_server: str) -> None:
    with pytest.raises(StoreError, match='refuses the connection: database "nowhere" does not exist; make it with'):
        await Scheduler(postgres_server.replace("/postgres?", "/nowhere?")).open()


def test_more_than_the_server_takes_at_once_is_not_taken_for_a_long_key(postgres_server: str) -> None:
    with psycopg.connect(postgres_server) as connection, pytest.raises(psycopg.Error) as refused:
        connection.execute("SELECT to_jsonb(repeat('x', 268435456))")
    told = translated(refused.value, "here")
    assert type(told) is StoreError, "no key is at fault, and a dispatcher continues"
    assert "smaller parts" in str(told)


async def test_a_key_that_no_index_can_hold_is_refused_and_spares_the_others(postgres_store: str) -> None:
    store = PostgresStore(postgres_store, "full", SystemClock())
    await store.open()
    try:
        chance = random.Random(1)
        long = "".join(chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(1300))
        answers = await asyncio.gather(
            *(store.add([new_task(key=key)]) for key in ("a", long, "b")), return_exceptions=True
        )
        assert isinstance(answers[1], SubmissionError)
        assert await store.count(Filters()) == 2
    finally:
        await store.close()


async def test_making_tables_takes_its_time_whatever_is_usual_in_the_database(postgres_store: str) -> None:
    impatient = f"{postgres_store}%20-cstatement_timeout%3D100ms%20-clock_timeout%3D100ms"
    store = PostgresStore(impatient, "full", SystemClock())
    async with await psycopg.AsyncConnection.connect(postgres_store) as other:
        await other.execute("SELECT pg_advisory_xact_lock(%s)", (postgres_migrate._LOCK,))
        opening = asyncio.create_task(store.open())
        await asyncio.sleep(0.4)
        await other.rollback()
        await opening
    await store.close()
