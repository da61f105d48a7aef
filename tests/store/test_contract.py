"""The stores under the contract suite: SQLite in memory and on a file, and a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from taskmill.clock import SystemClock
from taskmill.ports import Store
from taskmill.store.postgres.store import PostgresStore
from taskmill.store.sqlite.store import SqliteStore
from taskmill.testing.store_contract import StoreContract


class TestSqliteStore(StoreContract):
    @pytest.fixture
    async def store(self, any_store: str) -> AsyncIterator[Store]:
        store = SqliteStore(any_store, "full", SystemClock())
        await store.open()
        yield store
        await store.close()


class TestPostgresStore(StoreContract):
    @pytest.fixture
    async def store(self, postgres_store: str) -> AsyncIterator[Store]:
        store = PostgresStore(postgres_store, "full", SystemClock())
        await store.open()
        yield store
        await store.close()
