"""Storing submissions and claiming waiting tasks."""

from __future__ import annotations

import pytest

from taskmill.core.ports import Store
from taskmill.errors import DuplicateTask
from taskmill.model.attempt import End
from taskmill.model.commit import Commit
from taskmill.model.filters import Filters
from taskmill.model.settings import Retention
from taskmill.model.status import Ending, OnDuplicate, Status
from taskmill.model.submission import Stored
from taskmill.model.task import Lane, Place
from taskmill.model.turn import Look, Turn
from tests.store.contract.samples import NOW, TYPE, active, add, claim, commit, new_task


class StoringAndClaiming:
    """One law per test."""

    async def test_ids_ascend_in_input_order_and_are_never_reused(self, store: Store) -> None:
        first, second = await add(store, new_task(), new_task())
        assert first < second
        for task in await claim(store, first, second):
            await commit(store, task, End(Ending.COMPLETED, "1"))
        await store.prune(Retention(max_count=0).rules(), NOW, 100)
        (third,) = await add(store, new_task())
        assert third > second

    async def test_a_stored_task_reads_as_it_was_given(self, store: Store) -> None:
        (id,) = await add(
            store,
            new_task(
                '{"a":[1,"ü\\u0000"]}', key="k", label="l", group="g", priority=7, tags={"x": "y"}, expires_at=NOW + 9
            ),
        )
        record = await active(store, id)
        assert (record.key, record.label, record.group, record.priority) == ("k", "l", "g", 7)
        assert (record.payload, record.tags, record.domain) == ({"a": [1, "ü\0"]}, {"x": "y"}, "d")
        assert (record.status, record.attempt, record.started_at) == (Status.PENDING, 0, None)

    async def test_a_key_is_unique_among_active_tasks_of_a_type_and_free_afterwards(self, store: Store) -> None:
        (first,) = await store.add([new_task(key="k")])
        (again,) = await store.add([new_task(key="k")])
        (other,) = await store.add([new_task(key="k", type="d::other")])
        assert (again, other.kind) == (Stored(first.id, "duplicate"), "inserted")
        (task,) = await claim(store, first.id)
        assert (await store.add([new_task(key="k")]))[0].kind == "duplicate"
        await commit(store, task, End(Ending.FAILED, error="e"))
        assert (await store.add([new_task(key="k")]))[0].kind == "inserted"

    async def test_a_more_urgent_duplicate_raises_a_waiting_task_only(self, store: Store) -> None:
        (id,) = await add(store, new_task(key="k", priority=100))
        assert (await store.add([new_task(key="k", priority=50)]))[0] == Stored(id, "upgraded")
        assert (await store.add([new_task(key="k", priority=70)]))[0] == Stored(id, "duplicate")
        assert (await active(store, id)).priority == 50
        await claim(store, id)
        assert (await store.add([new_task(key="k", priority=1)]))[0] == Stored(id, "duplicate")

    async def test_a_refused_request_stores_nothing_of_itself(self, store: Store) -> None:
        (id,) = await add(store, new_task(key="k"))
        with pytest.raises(DuplicateTask) as caught:
            await store.add([new_task(), new_task(key="k", on_duplicate=OnDuplicate.REJECT)])
        assert caught.value.existing_id == id
        assert await store.count(Filters()) == 1

    async def test_the_watcher_is_notified_of_every_commit(self, store: Store) -> None:
        told: list[tuple[int, int]] = []

        def watch(arrived: Commit) -> None:
            told.extend((id, task.priority) for id, task in arrived.fresh)

        store.committed = watch
        one, two = await add(store, new_task(priority=1), new_task(priority=2))
        assert told == [(one, 1), (two, 2)]

    async def test_published_types_are_read_back_and_replaced(self, store: Store) -> None:
        await store.publish_types({"d::a": "{}", "d::b": '{"priority":1}'})
        await store.publish_types({"d::b": '{"priority":2}'})
        assert await store.published_types() == {"d::a": "{}", "d::b": '{"priority":2}'}

    # Claiming

    async def test_a_claim_takes_only_what_waits_and_counts_the_attempt(self, store: Store) -> None:
        pending, scheduled, stale = await add(
            store,
            new_task(),
            new_task(status=Status.SCHEDULED, due_at=NOW + 10),
            new_task(expires_at=NOW),
        )
        (task,) = await claim(store, pending, scheduled, stale, 999)
        assert (task.id, task.attempt, task.started_at) == (pending, 1, NOW)
        assert await claim(store, pending) == []
        assert (await active(store, pending)).status == Status.RUNNING
        assert (await active(store, stale)).status == Status.PENDING

    async def test_claimed_tasks_come_in_the_order_asked_for(self, store: Store) -> None:
        ids = await add(store, *(new_task() for _ in range(10)))
        wanted = [*ids[5:], *reversed(ids[:5])]
        assert [task.id for task in await claim(store, *wanted)] == wanted

    async def test_fronts_are_the_oldest_of_each_lane_in_order(self, store: Store) -> None:
        late, early, other, running = await add(
            store, new_task(queued_at=NOW + 5), new_task(queued_at=NOW), new_task(group="g", priority=3), new_task()
        )
        await claim(store, running)
        result = await store.turn(Turn(now=NOW, look=Look(survey=True)))
        assert sorted(result.lanes or []) == [Lane("", 128, TYPE), Lane("g", 3, TYPE)]
        assert result.fronts[Lane("", 128, TYPE)] == [Place(NOW, early, early), Place(NOW + 5, late, late)]
        assert result.fronts[Lane("g", 3, TYPE)] == [Place(NOW, other, other)]

    async def test_each_type_has_its_lane_so_that_none_stands_in_the_way_of_another(self, store: Store) -> None:
        other, known = await add(store, new_task(type="d::other"), new_task())
        result = await store.turn(Turn(now=NOW, look=Look(survey=True)))
        assert result.fronts == {
            Lane("", 128, TYPE): [Place(NOW, known, known)],
            Lane("", 128, "d::other"): [Place(NOW, other, other)],
        }

    async def test_a_replacement_in_the_place_of_another_task_has_a_separate_lane(self, store: Store) -> None:
        (fresh,) = await add(store, new_task())
        (renewed,) = await add(store, new_task(key="k", queued_at=NOW - 50))
        result = await store.turn(Turn(now=NOW, look=Look(survey=True)))
        assert result.fronts == {
            Lane("", 128, TYPE): [Place(NOW, fresh, fresh)],
            Lane("", 128, TYPE, renewed=True): [Place(NOW - 50, renewed, renewed, NOW)],
        }
