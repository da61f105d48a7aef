"""A database in memory starts as a copy of a migrated one, and is then independent."""

from __future__ import annotations

import contextlib
import gc
import sqlite3

import pytest

from taskmill import Domain, Scheduler
from taskmill.store.sqlite import migrate as migrating
from taskmill.store.sqlite.connection import MEMORY, Connection, connect
from taskmill.store.sqlite.store import LastingMemory
from taskmill.testing import ManualClock


def _contents(connection: Connection) -> list[str]:
    """Return the tables, indexes and triggers, and every row, as statements."""
    return list(connection.iterdump())


@pytest.mark.parametrize("has_image", [True, False], ids=["copied", "migrated"])
def test_a_new_database_in_memory_has_what_the_migrations_create(
    monkeypatch: pytest.MonkeyPatch, has_image: bool
) -> None:
    if not has_image:
        monkeypatch.setattr(migrating, "_empty_image", lambda: None)
    with contextlib.closing(connect(MEMORY)) as copy, contextlib.closing(connect(MEMORY)) as migrated:
        migrating.create_in_memory(copy)
        migrating.migrate(migrated, MEMORY)
        assert _contents(copy) == _contents(migrated)
        assert migrating.stored_version(copy, MEMORY) == migrating.NEWEST_VERSION


async def test_schedulers_in_memory_share_no_tasks() -> None:
    domain = Domain("work")

    @domain.task
    async def work() -> None:
        """Do nothing; no test runs it."""

    async with Scheduler(domains=[domain]) as one:
        first = await one.submit(work.prepare())
        async with Scheduler(domains=[domain]) as other:
            assert await other.tasks() == []
            assert (await other.submit(work.prepare())).id == first.id == 1
        assert len(await one.tasks()) == 1


async def test_a_lasting_memory_keeps_its_data_when_closed_and_closes_its_connection_when_it_goes() -> None:
    store = LastingMemory(ManualClock())
    for _ in range(2):
        await store.open()
        await store.close()
    connection = store._connection
    assert connection.execute("SELECT count(*) FROM taskmill_task").fetchone() == (0,)
    del store
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
