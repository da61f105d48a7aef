"""A request has the time of its transaction, not the time at which it was asked."""

from __future__ import annotations

from taskmill.core.clock import SystemClock
from taskmill.model.durations import from_ms
from taskmill.model.records import HistoryRecord
from taskmill.store.opening import open_store
from tests.store.contract.samples import NOW, add, new_task


class HurriedClock(SystemClock):
    """A clock on which five seconds pass between two looks at it."""

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0

    def monotonic(self) -> float:
        self._seconds += 5
        return self._seconds


async def test_a_cancelled_task_ends_when_its_transaction_begins(any_store: str) -> None:
    store = open_store(any_store, "full", HurriedClock())
    await store.open()
    try:
        (id,) = await add(store, new_task())
        await store.cancel([id], NOW)
        record = await store.get(id)
        assert isinstance(record, HistoryRecord)
        assert record.ended_at >= from_ms(NOW + 5000)
    finally:
        await store.close()
