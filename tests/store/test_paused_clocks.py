"""Records show stopped clocks correctly at every moment, whether or not an ended pause was processed yet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from taskmill.model.controls import Declared
from taskmill.model.durations import to_ms
from taskmill.model.records import TaskRecord
from taskmill.model.settings import Aging
from taskmill.policy.aging import effective_priority
from taskmill.store.sqlite.store import SqliteStore
from taskmill.testing import ManualClock
from tests.repetition import seeds
from tests.store.contract.paused_time import Account, PausedTime
from tests.store.contract.samples import NOW

AGING = Aging(grace=0, interval=0.001, step=1, ceiling=0)


class _SetClock(ManualClock):
    """A wall clock that the test sets; no code sleeps on it here."""

    def __init__(self) -> None:
        super().__init__(datetime.fromtimestamp(NOW / 1000, UTC))

    def set(self, now: int) -> None:
        self._now += timedelta(milliseconds=now - to_ms(self._now))


async def _shown(store: SqliteStore, account: Account) -> TaskRecord:
    record = await store.get(account.id)
    assert isinstance(record, TaskRecord)
    return record


@pytest.mark.parametrize("seed", seeds(5))
async def test_records_show_clocks_as_they_stand(seed: int) -> None:
    clock = _SetClock()
    store = SqliteStore(":memory:", "process", clock)
    store.declared = Declared(aging=AGING)
    await store.open()
    trial = PausedTime(store, seed, clock.set)
    try:
        for _ in range(60):
            await trial.step()
            counted = (await store.counts())["paused"]
            seen = 0
            for account in trial.accounts:
                record = await _shown(store, account)
                found = await store.situation(account.id)
                assert found is not None
                assert record.expires_at is not None
                seen += record.status == "paused"
                if account.claimed is None:
                    stands_still = trial.stands_still(account)
                    assert (record.status == "paused") == (stands_still and record.status != "scheduled")
                    waited = max(trial.now - account.aged_from, 0)
                    assert record.effective_priority == effective_priority(AGING, 128, waited)
                assert to_ms(record.expires_at) == account.expires_at
            assert counted == seen
    finally:
        await store.close()
