"""The SQLite store under the contract suite, in memory and on a file."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from taskmill.clock import SystemClock
from taskmill.ports import Store
from taskmill.store.sqlite.store import SqliteStore
from taskmill.testing.store_contract import StoreContract


class TestSqliteStore(StoreContract):
    @pytest.fixture
    async def store(self, any_store: str) -> AsyncIterator[Store]:
        store = SqliteStore(any_store, "full", SystemClock())
        await store.open()
        yield store
        await store.close()
