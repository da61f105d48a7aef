"""The contract suite on each store: SQLite in memory and on a file, and a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from taskmill.core.ports import Store
from taskmill.store.opening import open_store
from tests.store.clocks import StillClock
from tests.store.contract import StoreContract


class TestStores(StoreContract):
    @pytest.fixture
    async def store(self, any_store: str) -> AsyncIterator[Store]:
        store = open_store(any_store, "full", StillClock())
        await store.open()
        yield store
        await store.close()
