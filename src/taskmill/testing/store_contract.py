"""What every store must do, as tests. Put a store under them by subclassing and giving a ``store`` fixture::

class TestMyStore(StoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        ...  # an open, empty store
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from taskmill.errors import DuplicateTask
from taskmill.model.filters import Filters
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.model.stages import Claimed, Lane, NewTask, Place, Stored
from taskmill.model.status import Ending, OnDuplicate, Status
from taskmill.model.verdict import End, Return, TryAgain, Verdict
from taskmill.ports import Judged, Store, Turn, TurnResult

NOW = 1_900_000_000_000


def new_task(payload: str = "{}", **changes: Any) -> NewTask:
    task = NewTask(
        type="d::t",
        key=None,
        label=None,
        group="",
        priority=128,
        status=Status.PENDING,
        payload=payload,
        tags=None,
        overrides=None,
        created_at=NOW,
        queued_at=NOW,
        due_at=None,
        due_is_relative=False,
        expires_at=None,
        on_duplicate=OnDuplicate.SKIP,
    )
    return msgspec.structs.replace(task, **changes)


async def claim(store: Store, *ids: int, now: int = NOW) -> list[Claimed]:
    return (await store.turn(Turn(now=now, claims=list(ids)))).claimed


async def commit(store: Store, task: Claimed, verdict: Verdict, *, stopped: bool = False) -> TurnResult:
    return await store.turn(Turn(now=NOW + 500, judged=[Judged(task, verdict, 500, stopped)]))


async def add(store: Store, *tasks: NewTask) -> list[int]:
    return [stored.id for stored in await store.add(tasks)]


async def active(store: Store, id: int) -> TaskRecord:
    record = await store.get(id)
    assert isinstance(record, TaskRecord)
    return record


async def ended(store: Store, id: int) -> HistoryRecord:
    record = await store.get(id)
    assert isinstance(record, HistoryRecord)
    return record


class StoreContract:
    """The behaviour of a store, one law per test."""

    # Storing

    async def test_ids_ascend_in_input_order_and_are_never_reused(self, store: Store) -> None:
        first, second = await add(store, new_task(), new_task())
        assert first < second
        for task in await claim(store, first, second):
            await commit(store, task, End(Ending.COMPLETED, "1"))
        await store.prune(dict.fromkeys(Ending, (0, None)), NOW, 100)
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

    async def test_the_watcher_is_told_of_every_commit(self, store: Store) -> None:
        told: list[tuple[int, int]] = []

        def watch(tasks: Sequence[NewTask], stored: Sequence[Stored]) -> None:
            told.extend((task.priority, answer.id) for task, answer in zip(tasks, stored, strict=True))

        store.watch_added = watch
        one, two = await add(store, new_task(priority=1), new_task(priority=2))
        assert told == [(1, one), (2, two)]

    async def test_published_types_are_read_back_and_replaced(self, store: Store) -> None:
        await store.publish_types({"d::a": "{}", "d::b": '{"priority":1}'})
        await store.publish_types({"d::b": '{"priority":2}'})
        assert await store.published_types() == {"d::a": "{}", "d::b": '{"priority":2}'}

    # Claiming

    async def test_a_claim_takes_only_what_waits_and_counts_the_attempt(self, store: Store) -> None:
        pending, scheduled, stale = await add(
            store, new_task(), new_task(status=Status.SCHEDULED, due_at=NOW + 10), new_task(expires_at=NOW)
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
        result = await store.turn(Turn(now=NOW, survey=True))
        assert sorted(result.lanes or []) == [Lane("", 128), Lane("g", 3)]
        assert result.fronts[Lane("", 128)] == [Place(NOW, early), Place(NOW + 5, late)]
        assert result.fronts[Lane("g", 3)] == [Place(NOW, other)]

    async def test_a_refill_passes_over_types_nobody_can_run(self, store: Store) -> None:
        _, known = await add(store, new_task(type="d::unknown"), new_task())
        result = await store.turn(Turn(now=NOW, refill=[Lane("", 128)], pass_over=["d::unknown"]))
        assert result.fronts == {Lane("", 128): [Place(NOW, known)]}

    # Ending and returning

    @pytest.mark.parametrize("ending", list(Ending))
    async def test_an_ending_moves_the_task_to_history_in_one_step(self, store: Store, ending: Ending) -> None:
        (id,) = await add(store, new_task(key="k", tags={"a": "b"}))
        (task,) = await claim(store, id)
        await commit(store, task, End(ending, "[1]", "why"))
        record = await ended(store, id)
        assert (record.ending, record.result, record.error, record.tags) == (ending, [1], "why", {"a": "b"})
        assert record.duration is not None
        assert record.duration.total_seconds() == 0.5
        assert await store.count(Filters()) == 0
        assert await store.count(Filters(status=ending)) == 1
        assert [found.id for found in await store.history(Filters(tags={"a": "b"}))] == [id]
        assert await store.tag_values("a") == {}

    async def test_a_lost_token_writes_nothing(self, store: Store) -> None:
        (id,) = await add(store, new_task())
        (old,) = await claim(store, id)
        await commit(store, old, Return())
        (new,) = await claim(store, id)
        for verdict in (End(Ending.COMPLETED, "1"), TryAgain("e", None), Return()):
            assert (await commit(store, old, verdict)).lost == {(id, 1)}
        assert not await store.save(id, 1, '{"a":1}')
        await store.turn(Turn(now=NOW, progress=[(id, 1, '{"fraction":0.5}')]))
        record = await active(store, id)
        assert (record.status, record.attempt, record.progress) == (Status.RUNNING, 2, None)
        assert (await commit(store, new, End(Ending.COMPLETED, "2"))).lost == set()
        assert (await commit(store, new, End(Ending.COMPLETED, "3"))).lost == {(id, 2)}
        assert (await ended(store, id)).result == 2

    async def test_a_retry_costs_one_and_a_return_costs_nothing(self, store: Store) -> None:
        (id,) = await add(store, new_task())
        (task,) = await claim(store, id)
        await commit(store, task, TryAgain("first", None))
        assert (await active(store, id)).retries == 1
        (task,) = await claim(store, id)
        assert (task.retries, task.last_error) == (1, "first")
        await commit(store, task, Return())
        (task,) = await claim(store, id)
        assert (task.retries, task.crashes, task.attempt) == (1, 0, 3)
        await commit(store, task, Return(crashed=True, error="signal 9"))
        (task,) = await claim(store, id)
        assert (task.retries, task.crashes) == (1, 1)

    async def test_a_delayed_retry_waits_and_is_promoted_when_due(self, store: Store) -> None:
        (id,) = await add(store, new_task())
        (task,) = await claim(store, id)
        await commit(store, task, TryAgain("e", NOW + 1000))
        assert (await active(store, id)).status == Status.SCHEDULED
        result = await store.turn(Turn(now=NOW + 999, promote=True))
        assert (result.promoted, result.next_due) == (False, NOW + 1000)
        result = await store.turn(Turn(now=NOW + 1000, promote=True))
        assert (result.promoted, result.next_due) == (True, None)
        # The aging clock goes on: its place in the queue is that of its submission.
        assert result.fronts == {Lane("", 128): [Place(NOW, id)]}

    async def test_what_is_due_and_claimed_in_one_turn_shares_its_transaction(self, store: Store) -> None:
        done, next_one = await add(store, new_task(), new_task())
        (task,) = await claim(store, done)
        result = await store.turn(
            Turn(now=NOW, judged=[Judged(task, End(Ending.COMPLETED, "1"), 1)], claims=[next_one])
        )
        assert [claimed.id for claimed in result.claimed] == [next_one]
        assert (await ended(store, done)).ending == Ending.COMPLETED

    async def test_saved_state_and_progress_reach_the_next_attempt_and_history(self, store: Store) -> None:
        (id,) = await add(store, new_task())
        (task,) = await claim(store, id)
        assert await store.save(id, task.attempt, '{"part":3}')
        await store.turn(Turn(now=NOW, progress=[(id, task.attempt, '{"fraction":0.5,"message":"m"}')]))
        await commit(store, task, Return())
        (task,) = await claim(store, id)
        assert task.saved == '{"part":3}'
        await commit(store, task, End(Ending.COMPLETED, "1"))
        progress = (await ended(store, id)).progress
        assert progress is not None
        assert (progress.fraction, progress.message) == (0.5, "m")

    async def test_a_step_of_the_clock_moves_relative_delays_only(self, store: Store) -> None:
        relative, absolute = await add(
            store,
            new_task(status=Status.SCHEDULED, due_at=NOW + 10, queued_at=NOW + 10, due_is_relative=True),
            new_task(status=Status.SCHEDULED, due_at=NOW + 20, queued_at=NOW + 20),
        )
        await store.shift_relative(-5)
        result = await store.turn(Turn(now=NOW + 5, promote=True))
        assert result.fronts == {Lane("", 128): [Place(NOW + 5, relative)]}
        assert result.next_due == NOW + 20
        assert (await active(store, absolute)).status == Status.SCHEDULED

    async def test_expiry_takes_waiting_tasks_past_their_deadline_and_no_others(self, store: Store) -> None:
        stale, fresh, started, delayed = await add(
            store,
            new_task(expires_at=NOW + 10, key="k"),
            new_task(expires_at=NOW + 11),
            new_task(expires_at=NOW + 5),
            new_task(expires_at=NOW + 10, status=Status.SCHEDULED, due_at=NOW + 99),
        )
        await claim(store, started)
        result = await store.turn(Turn(now=NOW + 10, expire=True))
        assert sorted(task.id for task in result.expired) == [stale, delayed]
        assert result.next_expiry == NOW + 11
        assert (await ended(store, stale)).ending == Ending.EXPIRED
        assert (await active(store, fresh)).status == Status.PENDING
        assert (await active(store, started)).status == Status.RUNNING

    # Cancelling, recovering, reviving, pruning

    async def test_cancelling_ends_what_waits_and_asks_what_runs(self, store: Store) -> None:
        waiting, running = await add(store, new_task(key="k"), new_task())
        (task,) = await claim(store, running)
        result = await store.cancel([waiting, running, 999], NOW)
        assert ([ended.id for ended in result.ended], result.stopping) == ([waiting], [running])
        assert (await ended(store, waiting)).ending == Ending.CANCELLED
        survey = await store.turn(Turn(now=NOW, survey=True))
        assert survey.stops == [(running, 1, "cancel")]
        # A success that did not know of the request is refused; one that honours it is not.
        assert (await commit(store, task, End(Ending.COMPLETED, "1"))).lost == {(running, 1)}
        assert (await commit(store, task, TryAgain("e", None))).lost == {(running, 1)}
        assert (await commit(store, task, End(Ending.CANCELLED), stopped=True)).lost == set()
        assert (await ended(store, running)).ending == Ending.CANCELLED
        again = await store.cancel([waiting, running], NOW)
        assert (again.ended, again.stopping) == ([], [])

    async def test_recovery_returns_running_tasks_without_cost_and_quarantines_poison(self, store: Store) -> None:
        (id,) = await add(store, new_task())
        for crashes in (1, 2):
            await claim(store, id)
            recovery = await store.recover(NOW)
            assert (recovery.returned, recovery.quarantined) == (1, [])
            record = await active(store, id)
            assert (record.status, record.retries, record.attempt) == (Status.PENDING, 0, crashes)
        await claim(store, id)
        recovery = await store.recover(NOW)
        assert [task.id for task in recovery.quarantined] == [id]
        assert (await ended(store, id)).error == "crashed 3 times"
        assert (await store.recover(NOW)).returned == 0

    async def test_recovery_keeps_a_request_to_stop(self, store: Store) -> None:
        (id,) = await add(store, new_task())
        await claim(store, id)
        await store.cancel([id], NOW)
        await store.recover(NOW)
        result = await store.cancel([id], NOW)
        assert (result.ended, result.stopping) == ([], [id])
        (task,) = await claim(store, id)
        assert task.stop == "cancel"

    async def test_a_dead_letter_is_revived_under_its_id(self, store: Store) -> None:
        (id,) = await add(store, new_task('{"n":1}', key="k", tags={"a": "b"}, priority=3))
        (task,) = await claim(store, id)
        await store.save(id, 1, '{"s":1}')
        assert await store.revive(id, NOW) is None
        await commit(store, task, End(Ending.DEAD_LETTER, error="e"))
        revived = await store.revive(id, NOW + 7)
        assert revived is not None
        assert revived.id == id
        record = await active(store, id)
        assert (record.payload, record.retries, record.tags, record.priority) == ({"n": 1}, 0, {"a": "b"}, 3)
        assert await store.count(Filters(status=Ending.DEAD_LETTER)) == 0
        (task,) = await claim(store, id)
        assert (task.attempt, task.saved, task.queued_at) == (2, '{"s":1}', NOW + 7)

    async def test_a_dead_letter_whose_key_is_taken_stays_dead(self, store: Store) -> None:
        (id,) = await add(store, new_task(key="k"))
        (task,) = await claim(store, id)
        await commit(store, task, End(Ending.DEAD_LETTER, error="e"))
        (holder,) = await add(store, new_task(key="k"))
        with pytest.raises(DuplicateTask) as caught:
            await store.revive(id, NOW)
        assert caught.value.existing_id == holder
        assert (await ended(store, id)).ending == Ending.DEAD_LETTER

    async def test_pruning_keeps_the_newest_of_each_ending_in_small_bites(self, store: Store) -> None:
        ids = await add(store, *(new_task(tags={"n": str(n)}) for n in range(10)))
        for number, task in enumerate(await claim(store, *ids)):
            verdict = End(Ending.COMPLETED if number % 2 else Ending.FAILED, "1")
            await store.turn(Turn(now=NOW + number, judged=[Judged(task, verdict, 1)]))
        rules: dict[Ending, tuple[int | None, int | None]] = {Ending.COMPLETED: (2, None), Ending.FAILED: (None, None)}
        assert await store.prune(rules, NOW, 2) == 2
        assert await store.prune(rules, NOW, 2) == 1
        assert await store.prune(rules, NOW, 2) == 0
        completed = await store.history(Filters(status=Ending.COMPLETED))
        assert [record.id for record in completed] == [ids[9], ids[7]]
        assert await store.count(Filters(status=Ending.COMPLETED)) == 2
        assert await store.count(Filters(status=Ending.FAILED)) == 5
        assert (await store.stats("d::t")).count == 10, "statistics outlive what was pruned"
        assert await store.history(Filters(tags={"n": "1"})) == []

    async def test_pruning_by_age(self, store: Store) -> None:
        ids = await add(store, *(new_task() for _ in range(4)))
        for number, task in enumerate(await claim(store, *ids)):
            await store.turn(Turn(now=NOW + number * 1000, judged=[Judged(task, End(Ending.COMPLETED, "1"), 1)]))
        assert await store.prune({Ending.COMPLETED: (None, 1500)}, NOW + 3000, 100) == 2
        assert [record.id for record in await store.history(Filters())] == [ids[3], ids[2]]

    # Reading

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
        assert await store.waiting_by_group() == {"g": 1}
        stats = await store.stats("d::t")
        assert (stats.count, stats.completed, stats.failed, stats.failure_rate) == (2, 1, 1, 0.5)
        assert stats.avg_duration is not None
        assert stats.avg_duration.total_seconds() == 0.5
        assert (await store.stats("d::none")).avg_duration is None
        assert c.group == "g"
