"""Submitting inside the caller's own transaction."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from taskmill import Domain, Scheduler, StoreError, Submission, SubmissionError
from tests.acceptance.sqlite_library import sqlite3

pytestmark = pytest.mark.one_engine(
    "connections of SQLite are what is tested; those of PostgreSQL are in tests/postgres"
)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    path = tmp_path / "application.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE photo (name TEXT)")
    return path


def _doubling() -> Domain:
    domain = Domain("shared")

    @domain.task(tags={"t": "v"})
    async def double(n: int) -> int:
        return n * 2

    return domain


async def test_a_commit_makes_the_task_visible_and_it_runs(shared: Path) -> None:
    domain = _doubling()
    async with Scheduler(shared, domains=[domain]) as scheduler, scheduler.running():
        with contextlib.closing(sqlite3.connect(shared)) as connection:
            connection.execute("INSERT INTO photo VALUES ('a.jpg')")
            handle = await scheduler.submit(Submission("shared::double", {"n": 4}), connection=connection)
            assert connection.in_transaction
            assert await scheduler.tasks() == []
            connection.commit()
            assert await handle.result(timeout=10) == 8
            assert connection.execute("SELECT name FROM photo").fetchall() == [("a.jpg",)]
        assert await scheduler.history(tags={"t": "v"}) == [await handle.record()]


async def test_a_rollback_stores_nothing(shared: Path) -> None:
    domain = _doubling()
    async with Scheduler(shared, domains=[domain]) as scheduler:
        with contextlib.closing(sqlite3.connect(shared)) as connection:
            await scheduler.submit_many(
                [Submission("shared::double", {"n": n}, key=f"k{n}") for n in range(3)], connection=connection
            )
            connection.execute("INSERT INTO photo VALUES ('a.jpg')")
            connection.rollback()
            assert connection.execute("SELECT count(*) FROM photo").fetchone() == (0,)
        assert await scheduler.tasks() == []
        assert await scheduler.tag_values("t") == {}
        await scheduler.run_until_idle(timeout=10)
        assert await scheduler.history() == []


async def test_an_id_of_a_rolled_back_transaction_is_never_given_to_another_task(shared: Path) -> None:
    """This holds in this process and in another, however the next task is stored."""
    domain = _doubling()
    plain, keyed = Submission("shared::double", {"n": 1}), Submission("shared::double", {"n": 1}, key="k")
    told: list[int] = []
    async with Scheduler(shared, domains=[domain]) as scheduler:
        for submission in (plain, keyed):
            with contextlib.closing(sqlite3.connect(shared)) as connection:
                told.append((await scheduler.submit(submission, connection=connection)).id)
                told += [one.id for one in await scheduler.submit_many([plain] * 3, connection=connection)]
                connection.rollback()
            told.append((await scheduler.submit(submission)).id)
        with contextlib.closing(sqlite3.connect(shared)) as connection:
            told.append((await scheduler.submit(plain, connection=connection)).id)
            connection.rollback()
    async with Scheduler(shared, domains=[domain]) as another:
        told.append((await another.submit(plain)).id)
    assert told == sorted(set(told))


async def test_a_mark_of_given_ids_that_cannot_be_read_stores_nothing(shared: Path) -> None:
    async with Scheduler(shared, domains=[_doubling()]) as scheduler:
        mark = shared.with_name(shared.name + "-ids")
        mark.write_bytes(b"")
        assert (await scheduler.submit(Submission("shared::double", {"n": 1}))).id == 1
        mark.write_text("three")
        with pytest.raises(StoreError, match=r"application\.db-ids is damaged; delete it"):
            await scheduler.submit(Submission("shared::double", {"n": 1}))
        mark.unlink()
        assert (await scheduler.submit(Submission("shared::double", {"n": 1}))).id == 2


async def test_a_refusal_leaves_the_callers_transaction_as_it_was(shared: Path) -> None:
    domain = _doubling()
    async with Scheduler(shared, domains=[domain]) as scheduler:
        held = await scheduler.submit(Submission("shared::double", {"n": 1}, key="k"))
        with contextlib.closing(sqlite3.connect(shared)) as connection:
            connection.execute("INSERT INTO photo VALUES ('a.jpg')")
            batch = [
                Submission("shared::double", {"n": 2}),
                Submission("shared::double", {"n": 3}, key="k", on_duplicate="reject"),
            ]
            with pytest.raises(SubmissionError, match="'k'"):
                await scheduler.submit_many(batch, connection=connection)
            connection.commit()
            assert connection.execute("SELECT name FROM photo").fetchall() == [("a.jpg",)]
        assert [record.id for record in await scheduler.tasks()] == [held.id]


async def test_keys_count_inside_the_callers_transaction(shared: Path) -> None:
    domain = _doubling()
    async with Scheduler(shared, domains=[domain]) as scheduler:
        with contextlib.closing(sqlite3.connect(shared)) as connection:
            submission = Submission("shared::double", {"n": 1}, key="k")
            first = await scheduler.submit(submission, connection=connection)
            again = await scheduler.submit(submission, connection=connection)
            connection.commit()
        assert (first.kind, again.kind, again.id) == ("inserted", "duplicate", first.id)
        assert (await scheduler.submit(submission)).id == first.id


class ConnectionOfAnotherLibrary:
    """An object with the methods of a connection that is no supported connection."""

    def execute(self, *_: object) -> list[tuple[int, str, str]]:
        return [(0, "main", "application.db")]


async def test_a_connection_that_is_not_to_the_same_file_is_refused(shared: Path, tmp_path: Path) -> None:
    domain = _doubling()
    async with Scheduler(shared, domains=[domain]) as scheduler:
        submission = Submission("shared::double", {"n": 1})
        other = sqlite3.connect(tmp_path / "other.db")
        memory = sqlite3.connect(":memory:")
        attached = sqlite3.connect(tmp_path / "other.db")
        attached.execute("ATTACH ? AS main2", (str(shared),))
        for connection in (other, memory, attached, ConnectionOfAnotherLibrary(), str(shared), 5):
            with pytest.raises(SubmissionError, match="connection"):
                await scheduler.submit(submission, connection=connection)
        for opened in (other, memory, attached):
            assert opened.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
            opened.close()
        assert await scheduler.tasks() == []


async def test_a_closed_connection_is_refused(shared: Path) -> None:
    async with Scheduler(shared, domains=[_doubling()]) as scheduler:
        closed = sqlite3.connect(shared)
        closed.close()
        with pytest.raises(SubmissionError, match="connection"):
            await scheduler.submit(Submission("shared::double", {"n": 1}), connection=closed)


async def test_a_connection_under_another_name_of_the_file_is_accepted(shared: Path) -> None:
    link = shared.with_name("link.db")
    link.symlink_to(shared)
    async with Scheduler(shared, domains=[_doubling()]) as scheduler:
        with contextlib.closing(sqlite3.connect(link)) as connection, connection:
            await scheduler.submit(Submission("shared::double", {"n": 1}), connection=connection)
        assert await scheduler.count() == 1


async def test_a_scheduler_in_memory_shares_no_transaction(shared: Path) -> None:
    async with Scheduler(domains=[_doubling()]) as scheduler:
        connection = sqlite3.connect(shared)
        with contextlib.closing(connection), pytest.raises(SubmissionError, match="connection"):
            await scheduler.submit(Submission("shared::double", {"n": 1}), connection=connection)
