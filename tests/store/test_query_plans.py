"""The statements of the hot path use indexes and never scan a table."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

import pytest

from taskmill.store.sql.statements import positional
from taskmill.store.sqlite.migrate import migrate
from taskmill.store.sqlite.session import STATEMENTS as SQL
from taskmill.store.sqlite.session import Session
from tests.store.fragments import FRAGMENTS

# Statements that read or write a whole table, rarely: the types at a start, all deadlines when the wall clock is
# stepped, all tasks when a damaged one was set aside.
RARE = ("published_types", "shift_deadlines", "shift_relative", "shift_waits", "count_load")
TABLES = (
    "taskmill_task",
    "taskmill_history",
    "taskmill_task_tag",
    "taskmill_history_tag",
    "taskmill_dependency",
    "taskmill_error",
)


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, ":memory:")
    yield connection
    connection.close()


def plan(database: sqlite3.Connection, sql: str) -> list[str]:
    text = positional(sql).text
    parameters = [None] * text.count("?")
    return [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {text}", parameters)]


@pytest.mark.parametrize("name", [name for name in SQL if SQL[name] and name not in (*RARE, *FRAGMENTS)])
def test_no_statement_of_the_engine_scans_a_table_of_tasks(database: sqlite3.Connection, name: str) -> None:
    steps = plan(database, SQL[name])
    scans = [
        step
        for step in steps
        if step.startswith("SCAN")
        and any(step.split()[1] == table for table in TABLES)
        and "USING" not in step  # a partial index has only the wanted rows
    ]
    assert scans == [], f"{name}: {steps}"


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("survey", "taskmill_task_hook"),
        ("childless", "taskmill_task_waiting"),
        ("live_children", "taskmill_task_child"),
        ("dependents", "taskmill_dependency_on"),
        ("ties", "taskmill_dependency_open"),
        ("key_holders", "taskmill_task_key"),
        ("key_holders", "taskmill_task_stopping"),
        ("lanes", "taskmill_task_queue"),
        ("front_of_lanes", "taskmill_task_queue"),
        ("due", "taskmill_task_due"),
        ("next_due", "taskmill_task_due"),
        ("expired", "taskmill_task_expiry"),
        ("next_expiry", "taskmill_task_expiry"),
        ("survey", "taskmill_task_running"),
        ("forget_full_buckets", "taskmill_control_full"),
        ("orphans", "taskmill_task_running"),
        ("oldest_of_ending", "taskmill_history_ending"),
        ("older_of_ending", "taskmill_history_ending"),
        ("running_elsewhere", "taskmill_task_running"),
        ("count_ended_since", "taskmill_history_ending"),
        ("in_spans", "taskmill_task_queue"),
        ("in_renewed_spans", "taskmill_task_queue"),
        ("waiting", "taskmill_task_hook"),
        ("failed_since", "taskmill_error_at"),
        ("count_failed_since", "taskmill_error_at"),
    ],
)
def test_a_statement_uses_the_index_made_for_it(database: sqlite3.Connection, name: str, index: str) -> None:
    steps = plan(database, SQL[name])
    assert any(index in step for step in steps), steps
    assert not any("TEMP B-TREE" in step for step in steps), f"{name} sorts: {steps}"


def test_a_bite_of_a_sweep_costs_the_same_whatever_else_waits(database: sqlite3.Connection) -> None:
    def steps(lasting: int) -> int:
        database.execute("DELETE FROM taskmill_task")
        database.execute(
            "WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 100 + ?)"
            " INSERT INTO taskmill_task"
            " (type, group_name, priority, urgency, status, payload, created_at, queued_at, expires_at)"
            " SELECT 'd::t', '', 1, 1, 'pending', '{}', 0, 0, iif(value <= 100, 5, iif(value % 2, 7, NULL)) FROM n",
            (lasting,),
        )
        counted = 0

        def count() -> int:
            nonlocal counted
            counted += 1
            return 0

        database.set_progress_handler(count, 1)
        (expired,) = Session(database).execute("expired", (6, 50)).fetchone()
        (following,) = database.execute(SQL["next_expiry"]).fetchone()
        database.set_progress_handler(None, 0)
        assert (len(json.loads(expired)), following) == (50, 5)
        return counted

    few, many = steps(60), steps(6000)
    assert many <= few * 1.5


def test_finding_the_lanes_costs_the_same_whatever_waits_in_them(database: sqlite3.Connection) -> None:
    def steps(tasks: int) -> int:
        database.execute("DELETE FROM taskmill_task")
        database.execute(
            "WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < ?)"
            " INSERT INTO taskmill_task (type, group_name, priority, urgency, status, payload, created_at, queued_at)"
            " SELECT 'd::t', 'g' || (value % 3), value % 2, value % 2, 'pending', '{}', 0, -value FROM n",
            (tasks,),
        )
        counted = 0

        def count() -> int:
            nonlocal counted
            counted += 1
            return 0

        database.set_progress_handler(count, 1)
        (lanes,) = database.execute(SQL["lanes"]).fetchone()
        database.set_progress_handler(None, 0)
        assert sorted(map(tuple, json.loads(lanes))) == [
            (f"g{g}", p, "d::t", False, -max(n for n in range(tasks + 1) if (n % 3, n % 2) == (g, p)), None, None)
            for g in range(3)
            for p in range(2)
        ]
        return counted

    few, many = steps(60), steps(6000)
    assert many <= few * 1.5


@pytest.mark.parametrize("name", ["load", "waiting", "add_to_load"])
def test_numbers_of_tasks_are_read_and_kept_without_looking_at_the_queue(
    database: sqlite3.Connection, name: str
) -> None:
    few = ("taskmill_task_hook", "taskmill_task_running")
    steps = [step for step in plan(database, SQL[name]) if not step.endswith(few)]
    assert not any("taskmill_task" in step for step in steps), steps


def test_counting_tasks_ahead_costs_the_same_whatever_waits_behind_the_limit(database: sqlite3.Connection) -> None:
    def steps(tasks: int) -> int:
        database.execute("DELETE FROM taskmill_task")
        database.execute(
            "WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < ?)"
            " INSERT INTO taskmill_task (type, group_name, priority, urgency, status, payload, created_at, queued_at)"
            " SELECT 'd::t', '', 1, 1, 'pending', '{}', 0, value FROM n",
            (tasks,),
        )
        counted = 0

        def count() -> int:
            nonlocal counted
            counted += 1
            return 0

        spans = json.dumps([[0, "", 1, "d::t", False, -1, 2**62, 0]])
        database.set_progress_handler(count, 1)
        (found,) = Session(database).execute("in_spans", (spans, 50)).fetchone()
        database.set_progress_handler(None, 0)
        assert json.loads(found) == [[0, 50]]
        return counted

    few, many = steps(60), steps(6000)
    assert many <= few * 1.5
