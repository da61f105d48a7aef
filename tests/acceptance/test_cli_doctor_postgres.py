"""Problems that ``taskmill doctor`` finds on a PostgreSQL server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from taskmill import Domain, Scheduler
from taskmill.cli.commands.doctor import judge_server
from taskmill.store.postgres import health
from taskmill.store.postgres.migrate import NEWEST_VERSION
from tests.acceptance.command_line import Here
from tests.postgres.keeper import Server
from tests.postgres.server import address

pytestmark = pytest.mark.one_engine("PostgreSQL is what is tested")

domain = Domain("d")


@domain.task
async def work() -> None:
    """Do nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    """A server whose settings allow what the doctor warns about."""
    server = Server({"max_prepared_transactions": "2", "max_replication_slots": "2"})
    yield address(server.folder)
    server.stop()


def fill(store: str) -> None:
    async def run() -> None:
        async with Scheduler(store, domains=[domain]) as scheduler:
            await scheduler.submit_many([work.prepare() for _ in range(3)])

    asyncio.run(run())


def found(document: Any) -> dict[str, tuple[str, str]]:
    return {finding["subject"]: (finding["level"], finding["text"]) for finding in document["findings"]}


def test_a_server_that_is_well(here: Here, postgres_store: str) -> None:
    fill(postgres_store)
    document = here.answer("doctor", postgres_store)
    assert document["healthy"]
    facts = document["facts"]
    assert {finding["level"] for finding in document["findings"]} == {"ok"}
    assert (facts["schema"], facts["encoding"], facts["nodes"]["alive"]) == (NEWEST_VERSION, "UTF8", [])
    assert abs(facts["clock_ahead"]) < 1
    assert {table["name"] for table in facts["tables"]} >= {"taskmill_task", "taskmill_history", "taskmill_node"}
    assert facts["bytes"] == sum(table["bytes"] + table["index_bytes"] for table in facts["tables"])
    assert 0 < facts["connections"] < facts["max_connections"]
    assert "nothing runs tasks" in found(document)["nodes"][1]


def test_a_server_on_which_things_were_forgotten(here: Here, server: str) -> None:
    fill(server)
    with psycopg.connect(server, autocommit=True) as connection, psycopg.connect(server) as idle:
        connection.execute("CREATE TABLE theirs (n int)")
        connection.execute("BEGIN; INSERT INTO theirs VALUES (1); PREPARE TRANSACTION 'forgotten'")
        connection.execute("SELECT pg_create_physical_replication_slot('nobody', true)")
        connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'taskmill_task_key'::regclass")
        connection.execute(
            "UPDATE taskmill_task SET status = 'running', node_id = 77, attempt = 1, started_at = 1 WHERE id = 1"
        )
        idle.execute("SET application_name = 'a notebook'")
        idle.execute("SELECT 1 FROM taskmill_task")
        time.sleep(0.3)
        document = here.answer("doctor", server, code=1)
        facts, said = document["facts"], found(document)
        pid = idle.info.backend_pid
        connection.execute("ROLLBACK PREPARED 'forgotten'")
    assert not document["healthy"]
    assert [one["gid"] for one in facts["prepared_transactions"]] == ["forgotten"]
    assert [(slot["name"], slot["active"]) for slot in facts["replication_slots"]] == [("nobody", False)]
    oldest = facts["oldest_transaction"]
    assert (oldest["pid"], oldest["application"], oldest["state"]) == (pid, "a notebook", "idle in transaction")
    assert oldest["seconds"] > 0.2
    assert said["indexes"][0] == "problem"
    assert "REINDEX INDEX CONCURRENTLY taskmill_task_key" in said["indexes"][1]
    assert said["lost tasks"][0] == "problem"


def _wait_until_a_session_waits(store: str) -> None:
    with psycopg.connect(store, autocommit=True) as looking:
        while not looking.execute(
            "SELECT 1 FROM pg_locks WHERE relation = 'taskmill_writing'::regclass AND NOT granted"
        ).fetchone():
            time.sleep(0.01)


def test_a_session_that_blocks_all_writers_is_named(
    here: Here, postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(postgres_store)
    monkeypatch.setattr(health, "STUCK", 0.1)
    with psycopg.connect(postgres_store) as holding, psycopg.connect(postgres_store) as waiting:
        holding.execute("LOCK TABLE taskmill_writing IN EXCLUSIVE MODE")
        stuck = threading.Thread(target=waiting.execute, args=("LOCK TABLE taskmill_writing IN SHARE MODE",))
        stuck.start()
        try:
            _wait_until_a_session_waits(postgres_store)
            pid = holding.info.backend_pid
            time.sleep(0.2)
            document = here.answer("doctor", postgres_store, code=1)
        finally:
            holding.rollback()
            stuck.join()
    level, text = found(document)["writing"]
    assert level == "problem"
    assert f"1 session stuck behind process {pid};" in text


WELL: dict[str, Any] = {
    "server_version": "16.1",
    "encoding": "UTF8",
    "nodes": {"alive": ["a:1"], "dead": [], "without_node": 0},
    "clock_ahead": 0.001,
    "tables": [
        {
            "name": "taskmill_task",
            "bytes": 1,
            "index_bytes": 1,
            "live": 9,
            "dead": 9,
            "last_vacuum": "2026-01-01T00:00:00Z",
        }
    ],
    "indexes": [{"name": "i", "table": "taskmill_task", "bytes": 9, "is_valid": True, "scans": 0}],
    "blocked": {"waiting": 0, "behind": []},
    "oldest_transaction": None,
    "sees_all_sessions": True,
    "prepared_transactions": [{"gid": "g", "seconds": 1.0}],
    "replication_slots": [{"name": "s", "active": True, "bytes": 10**12}, {"name": "t", "active": False, "bytes": 5}],
    "connections": 5,
    "max_connections": 100,
}
OLD = {"seconds": 4000.0, "pid": 7, "application": "", "user": "ann", "state": "idle in transaction"}


def test_a_sound_server_is_reported_as_such() -> None:
    assert {finding.level for finding in judge_server(WELL)} == {"ok"}


@pytest.mark.parametrize(
    ("fact", "value", "level", "words"),
    [
        ("encoding", "SQL_ASCII", "problem", "UTF8"),
        (
            "nodes",
            {"alive": ["a:1"], "dead": ["b:2"], "without_node": 0},
            "note",
            "b:2 died; other nodes return",
        ),
        ("nodes", {"alive": [], "dead": ["b:2"], "without_node": 0}, "note", "start a node"),
        (
            "nodes",
            {"alive": [], "dead": [], "without_node": 2},
            "problem",
            "2 tasks marked as running without a node",
        ),
        (
            "nodes",
            {"alive": ["a:1"], "dead": [], "without_node": 2},
            "problem",
            "a live node returns them",
        ),
        ("clock_ahead", -5.0, "note", "5.0 s behind"),
        ("clock_ahead", 90.0, "problem", "1 min 30 s ahead of"),
        ("tables", [{**WELL["tables"][0], "dead": 20_000}], "note", "VACUUM taskmill_task"),
        ("tables", [{**WELL["tables"][0], "dead": 20_000, "last_vacuum": None}], "note", "never so far"),
        ("indexes", [{**WELL["indexes"][0], "bytes": 20_000_000}], "note", "20.0 MB for 9 rows; REINDEX"),
        ("indexes", [{**WELL["indexes"][0], "is_valid": False}], "problem", "REINDEX"),
        ("blocked", {"waiting": 2, "behind": [3, 4]}, "problem", "2 sessions stuck behind process 3, 4"),
        ("oldest_transaction", OLD, "note", "pg_terminate_backend(7)"),
        ("prepared_transactions", [{"gid": "g", "seconds": 900.0}], "note", "ROLLBACK PREPARED 'g'"),
        ("replication_slots", [{"name": "s", "active": False, "bytes": 2 * 10**9}], "note", "pg_drop_replication_slot"),
        ("connections", 95, "note", "soon be refused"),
    ],
)
def test_problems_are_reported_with_advice(fact: str, value: object, level: str, words: str) -> None:
    bad = [finding for finding in judge_server({**WELL, fact: value}) if finding.level != "ok"]
    assert [finding.level for finding in bad] == [level]
    assert words in bad[0].text


def test_the_doctor_says_what_a_user_may_not_see() -> None:
    (oldest,) = [
        each for each in judge_server({**WELL, "sees_all_sessions": False}) if each.subject == "oldest transaction"
    ]
    assert "pg_read_all_stats" in oldest.text
