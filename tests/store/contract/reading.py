"""Records, filters, counts and statistics."""

from __future__ import annotations

from typing import Any

import pytest

from taskmill.core.ports import Store
from taskmill.model.attempt import End
from taskmill.model.filters import Filters
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.model.status import Ending, Status
from taskmill.model.turn import Judged, Turn
from taskmill.store.sql import reading
from tests.store.contract.samples import NOW, add, claim, commit, new_task


class Reading:
    """One law per test."""

    async def test_filters_find_active_tasks(self, store: Store) -> None:
        a, b, c = await add(
            store,
            new_task(type="x::one", group="g", key="k", tags={"env": "prod", "env.zone": "eu"}),
            new_task(type="x::two", status=Status.SCHEDULED, due_at=NOW + 1, tags={"env": "test"}),
            new_task(type="xy::one"),
        )

        async def found(**filters: Any) -> list[int]:
            records = await store.tasks(Filters(**filters))
            if "limit" not in filters:
                assert await store.count(Filters(**filters)) == len(records)
            return [record.id for record in records]

        assert await found() == [a, b, c]
        assert await found(type="x::one") == [a]
        assert await found(domain="x") == [a, b]
        assert await found(status=Status.SCHEDULED) == [b]
        assert await found(group="") == [b, c]
        assert await found(key="k") == [a]
        assert await found(tags={"env": "prod"}) == [a]
        assert await found(tags={"env": "prod", "env.zone": "us"}) == []
        assert await found(tag_prefix="env.") == [a]
        assert await found(tag_prefix="env") == [a, b]
        assert await found(limit=2) == [a, b]
        assert await found(before=b) == [a]
        assert await found(status=Ending.COMPLETED) == []
        assert await store.tag_values("env") == {"prod": 1, "test": 1}

    async def test_history_is_newest_first_and_can_be_paged(self, store: Store) -> None:
        ids = await add(store, *(new_task(type=f"d::t{n % 2}") for n in range(6)))
        order = [3, 1, 5, 0, 2, 4]
        claimed = await claim(store, *ids)
        for at, number in enumerate(order):
            judged = [Judged(claimed[number], End(Ending.COMPLETED, "1"), 1)]
            await store.turn(Turn(now=NOW + at, judged=judged))
        newest = [ids[number] for number in reversed(order)]
        assert [record.id for record in await store.history(Filters())] == newest
        page = await store.history(Filters(limit=2))
        assert [record.id for record in page] == newest[:2]
        rest = await store.history(Filters(before=page[-1].id))
        assert [record.id for record in rest] == newest[2:]
        assert len(await store.history(Filters(type="d::t0", status=Ending.COMPLETED))) == 3
        assert await store.history(Filters(status=Status.PENDING)) == []
        assert await store.ended_among([ids[0], ids[1], 999]) == sorted([ids[0], ids[1]])

    async def test_work_elsewhere_is_what_ended_lately_and_what_other_processes_run(self, store: Store) -> None:
        ids = await add(store, *(new_task() for _ in range(3)))
        first, second, _ = await claim(store, *ids)
        for at, task in ((NOW + 1, first), (NOW + 2, second)):
            await store.turn(Turn(now=at, judged=[Judged(task, End(Ending.COMPLETED, "1"), 1)]))
        found = await store.work_elsewhere(NOW, NOW)
        assert list(map(tuple, found.ended)) == [(NOW + 2, ids[1]), (NOW + 1, ids[0])]
        assert found.left_out == 0
        later = await store.work_elsewhere(NOW + 2, NOW)
        assert [id for _, id in later.ended] == [ids[1]]
        records = await store.records([*ids, 999])
        assert {id: type(record) for id, record in records.items()} == {
            ids[0]: HistoryRecord,
            ids[1]: HistoryRecord,
            ids[2]: TaskRecord,
        }

    async def test_endings_beyond_the_limit_are_counted(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading, "MOST_ENDED", 2)
        ids = await add(store, *(new_task() for _ in range(5)))
        for at, task in enumerate(await claim(store, *ids)):
            await store.turn(Turn(now=NOW + at, judged=[Judged(task, End(Ending.COMPLETED, "1"), 1)]))
        found = await store.work_elsewhere(NOW, NOW + 1)
        assert [id for _, id in found.ended] == [ids[4], ids[3]]
        assert found.left_out == 2

    async def test_find_prefers_the_active_task_then_the_latest_ended(self, store: Store) -> None:
        assert await store.find("d::t", "k") is None
        for number in range(2):
            (id,) = await add(store, new_task(key="k"))
            (task,) = await claim(store, id)
            judged = [Judged(task, End(Ending.COMPLETED, str(number)), 1)]
            await store.turn(Turn(now=NOW + number, judged=judged))
        record = await store.find("d::t", "k")
        assert isinstance(record, HistoryRecord)
        assert record.result == 1
        (id,) = await add(store, new_task(key="k"))
        record = await store.find("d::t", "k")
        assert record is not None
        assert record.id == id

    async def test_counts_and_statistics(self, store: Store) -> None:
        ids = await add(store, *(new_task(group="g" if n else "") for n in range(4)))
        a, b, c = await claim(store, *ids[:3])
        await commit(store, a, End(Ending.COMPLETED, "1"))
        await commit(store, b, End(Ending.DEAD_LETTER, error="e"))
        counts = await store.counts()
        assert (counts["pending"], counts["running"], counts["completed"], counts["dead_letter"]) == (1, 1, 1, 1)
        assert set(counts) == {*map(str, Status), *map(str, Ending)}
        load = await store.load_of_groups()
        assert (load.waiting, load.unstarted) == ({("g", "d::t"): 1}, {"d::t": 1})
        stats = await store.stats("d::t")
        assert (stats.count, stats.completed, stats.failed, stats.failure_rate) == (2, 1, 1, 0.5)
        assert stats.avg_duration is not None
        assert stats.avg_duration.total_seconds() == 0.5
        assert (await store.stats("d::none")).avg_duration is None
        assert c.group == "g"
