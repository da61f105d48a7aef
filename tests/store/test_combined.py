"""Several statements in one call: the same result as one after the other, and all of them or none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmill import Domain, Retention, Scheduler
from taskmill.store.sql import ledger
from taskmill.store.sql.connection import ANSWER, Connection, Statement
from taskmill.store.sqlite import writer
from taskmill.store.sqlite.combined import LARGE
from taskmill.store.sqlite.connection import DatabaseError, connect
from taskmill.store.sqlite.migrate import migrate
from taskmill.store.sqlite.session import Session

domain = Domain("work")


@domain.task
async def double(number: int) -> int:
    return 2 * number


@domain.task
async def measure(text: str) -> int:
    return len(text)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    path = str(tmp_path / "tasks.db")
    connection = connect(path)
    migrate(connection, path)
    yield Session(connection)
    connection.close()


def tally(ending: str, n: int = 1) -> Statement:
    return Statement("tally", (f'[["work::double", "", "{ending}", {n}, 5]]',))


def tallied(session: Session) -> list[tuple[str, int]]:
    return session.raw.execute("SELECT ending, ended FROM taskmill_tally ORDER BY ending").fetchall()


def test_statements_run_in_order_and_the_last_select_is_returned(session: Session) -> None:
    answer = session.execute_together([tally("completed"), tally("failed", 3), Statement("kept_by_ending", ())])
    assert answer == '{"completed":1,"failed":3}'
    assert tallied(session) == [("completed", 1), ("failed", 3)]


def test_a_statement_gets_the_answer_of_an_earlier_one(session: Session) -> None:
    session.execute_together([tally("completed"), tally("failed")])
    answer = session.execute_together([Statement("kept_by_ending", ()), Statement("declare", (ANSWER,))])
    assert session.execute("declared").fetchone() == (answer,)


@pytest.mark.parametrize("expected", [0, 2])
def test_other_rows_than_expected_undo_all(session: Session, expected: int) -> None:
    statements = [tally("completed"), tally("failed")._replace(rows=expected)]
    session.raw.execute("BEGIN")
    assert session.execute_together(statements) is None
    assert session.raw.in_transaction, "the transaction goes on"
    session.raw.execute("COMMIT")
    assert tallied(session) == []
    assert session.execute_together([tally("completed"), tally("failed")._replace(rows=1)]) is not None


def test_a_select_may_expect_rows(session: Session) -> None:
    version = session.execute("version").fetchone()[0]
    same, other = (Statement("same_controls", (number,), 1) for number in (version, version + 1))
    assert session.execute_together([same, tally("completed")]) is not None
    assert session.execute_together([other, tally("completed")]) is None
    assert tallied(session) == [("completed", 1)]


def test_the_same_statements_may_expect_rows_or_an_answer_or_not(session: Session) -> None:
    assert session.execute_together([tally("completed")]) is not None
    assert session.execute_together([tally("completed")._replace(rows=5)]) is None
    session.execute_together([Statement("kept_by_ending", ()), Statement("declare", ("given",))])
    session.execute_together([Statement("kept_by_ending", ()), Statement("declare", (ANSWER,))])
    assert session.execute("declared").fetchone() == ('{"completed":1}',)


def test_a_large_answer_is_not_kept(session: Session) -> None:
    large = "x" * 4 * LARGE
    session.execute("declare", (large,))
    assert session.execute_together([Statement("declared", ())]) == large
    (pages,) = session.raw.execute("PRAGMA temp.page_count").fetchone()
    assert pages < 10


def test_refused_data_is_an_error(session: Session) -> None:
    with pytest.raises(DatabaseError, match="NOT NULL"):
        session.execute_together([tally("completed"), Statement("tally", ('[[null, "", "failed", 1, 5]]',))])
    assert tallied(session) == []


def test_combinations_work_after_the_rollback_of_the_transaction_that_created_them(session: Session) -> None:
    for _ in range(3):
        session.raw.execute("BEGIN")
        session.execute_together([tally("completed")])
        session.raw.execute("ROLLBACK")
        session.forget_combined()
    session.execute_together([tally("completed")])
    assert tallied(session) == [("completed", 1)]


def test_nothing_of_it_is_in_the_file(session: Session) -> None:
    session.execute_together([tally("completed")])
    names = [name for (name,) in session.raw.execute("SELECT name FROM main.sqlite_schema")]
    assert not [name for name in names if "combined" in name or "answer" in name]


class Paths:
    """Counts the plain turns, and how many of them were committed in one call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.together: list[bool] = []
        whole = ledger._commit_together

        def counted(connection: Connection, *given: object) -> bool:
            self.together.append(whole(connection, *given))  # type: ignore[arg-type]
            return self.together[-1]

        monkeypatch.setattr(ledger, "_commit_together", counted)
        monkeypatch.setattr(writer, "INLINE_ROWS", 0)


def test_turns_of_large_tasks_are_committed_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_large() -> None:
        async with Scheduler(tmp_path / "tasks.db", domains=[domain], max_concurrency=8) as scheduler:
            text = "x" * (ledger.MOST_TOGETHER // 4)
            handles = await scheduler.submit_many([measure.prepare(text) for _ in range(40)])
            await scheduler.run_until_idle()
            assert {await handle.result() for handle in handles} == {len(text)}

    paths = Paths(monkeypatch)
    asyncio.run(run_large())
    assert len(paths.together) <= 1, "a turn that ends few of them"


async def run(path: Path, tasks: int = 300) -> list[tuple[object, ...]]:
    """Run tasks, some of them with tags, and return what is left in the file."""
    async with Scheduler(path, domains=[domain], retention=Retention(max_count=200)) as scheduler:
        for tags in ({}, {"kind": "tagged"}):
            handles = await scheduler.submit_many([double.options(tags=tags).prepare(i) for i in range(tasks)])
            await scheduler.run_until_idle()
            assert await handles[-1].result() == 2 * (tasks - 1)
        await scheduler.prune()
        assert await scheduler.count(tags={"kind": "tagged"}, status="completed") == 200
    connection = connect(str(path))
    try:
        load = connection.execute("SELECT sum(tasks) FROM taskmill_load").fetchall()
        tally = connection.execute("SELECT type, ending, ended, kept FROM taskmill_tally").fetchall()
        history = connection.execute("SELECT id, ending, attempt, result FROM taskmill_history ORDER BY id").fetchall()
        return [*load, *tally, *history]
    finally:
        connection.close()


def test_plain_turns_leave_the_same_whether_they_are_committed_in_one_call_or_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Paths(monkeypatch)
    together = asyncio.run(run(tmp_path / "together.db"))
    assert any(paths.together)
    monkeypatch.setattr(ledger, "_is_plain", lambda _turn: False)
    assert asyncio.run(run(tmp_path / "parts.db")) == together
