"""A request has the time of its transaction, not the time at which it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest_asyncio

from taskmill import Domain, Scheduler
from taskmill.core.ports import Store
from taskmill.model.attempt import End
from taskmill.model.controls import EVERYTHING
from taskmill.model.durations import from_ms
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.model.status import Ending
from taskmill.store.opening import open_store
from tests.store.clocks import HurriedClock
from tests.store.contract.samples import NOW, add, claim, commit, new_task


@pytest_asyncio.fixture
async def store(any_store: str) -> AsyncIterator[Store]:
    store = open_store(any_store, "full", HurriedClock())
    await store.open()
    yield store
    await store.close()


async def test_a_cancelled_task_ends_when_its_transaction_begins(store: Store) -> None:
    (id,) = await add(store, new_task())
    await store.cancel([id], NOW)
    record = await store.get(id)
    assert isinstance(record, HistoryRecord)
    assert record.ended_at >= from_ms(NOW + 5000)


async def test_a_pause_begins_and_ends_when_its_transaction_begins(store: Store) -> None:
    await store.pause(EVERYTHING, NOW, NOW + 3000, relative=True)
    (pause,) = (await store.controls()).pauses.values()
    assert pause.since >= NOW + 5000
    assert pause.until is not None
    assert pause.until - pause.since == 3000


async def test_a_resumed_scope_was_paused_until_the_transaction_begins(store: Store) -> None:
    (id,) = await add(store, new_task(expires_at=NOW + 60_000))
    await store.pause(EVERYTHING, NOW, None)
    (pause,) = (await store.controls()).pauses.values()
    await store.resume(EVERYTHING, pause.since)
    record = await store.get(id)
    assert isinstance(record, TaskRecord)
    assert record.expires_at is not None
    assert record.expires_at >= from_ms(NOW + 60_000 + 5000)


async def test_a_pause_until_an_instant_that_has_passed_ends_when_it_begins(store: Store) -> None:
    await store.pause(EVERYTHING, NOW, NOW + 3000)
    (pause,) = (await store.controls()).pauses.values()
    assert pause.until == pause.since >= NOW + 5000


async def test_a_revived_task_waits_from_its_transaction_on(store: Store) -> None:
    (id,) = await add(store, new_task())
    (task,) = await claim(store, id)
    await commit(store, task, End(Ending.DEAD_LETTER, error="no"))
    await store.revive(id, NOW)
    (again,) = await claim(store, id, now=NOW + 60_000)
    assert again.queued_at >= NOW + 5000


async def test_a_cancelled_series_ends_when_its_transaction_begins(any_store: str) -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> None: ...

    async with Scheduler(any_store, domains=[domain], clock=HurriedClock()) as scheduler:
        handle = await scheduler.submit(work.options(every=3600, run_after=3600).prepare())
        asked_at = datetime.now(UTC)
        await scheduler.cancel_recurring(handle.id)
        record = await scheduler.get(handle.id)
    assert isinstance(record, HistoryRecord)
    assert record.ended_at >= asked_at + timedelta(seconds=4.9)
