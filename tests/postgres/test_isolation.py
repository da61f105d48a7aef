"""Databases and roles whose default isolation level is REPEATABLE READ or SERIALIZABLE."""

from __future__ import annotations

import psycopg
import pytest

from taskmill.core.clock import SystemClock
from taskmill.store.postgres.store import PostgresStore
from taskmill.store.sql.connection import Connection


@pytest.mark.parametrize("level", ["repeatable%5C%20read", "serializable"])
async def test_a_concurrent_change_does_not_restart_the_transaction(postgres_store: str, level: str) -> None:
    store = PostgresStore(f"{postgres_store}%20-cdefault_transaction_isolation%3D{level}", "full", SystemClock())
    await store.open()
    tries = 0
    with psycopg.connect(postgres_store, autocommit=True) as other:

        def note(connection: Connection) -> int:
            nonlocal tries
            tries += 1
            connection.execute("version")
            if tries == 1:
                other.execute("UPDATE taskmill_setting SET value = '5'")
            connection.execute("bump_version")
            found: int = connection.execute("version").fetchone()[0]
            return found

        assert await store._write(note) == 6
    await store.close()
    assert tries == 1
