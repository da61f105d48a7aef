"""Verdicts, tokens, returns and time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from taskmill.core.ports import Store
from taskmill.model.attempt import AttemptFailure, End, Return, TryAgain
from taskmill.model.filters import Filters
from taskmill.model.status import Ending, Status
from taskmill.model.task import DueTask, Lane, Place
from taskmill.model.turn import DueFront, Judged, Look, Starts, Turn, TurnUpkeep
from tests.store.contract.samples import NOW, TYPE, active, add, claim, commit, ended, new_task


class Finishing:
    """One law per test."""

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
            assert (await commit(store, old, verdict)).lost == {(id, 1): None}
        assert not await store.save(id, 1, '{"a":1}')
        await store.turn(Turn(now=NOW, progress=[(id, 1, '{"fraction":0.5}')]))
        record = await active(store, id)
        assert (record.status, record.attempt, record.progress) == (Status.RUNNING, 2, None)
        assert (await commit(store, new, End(Ending.COMPLETED, "2"))).lost == {}
        assert (await commit(store, new, End(Ending.COMPLETED, "3"))).lost == {(id, 2): None}
        assert (await ended(store, id)).result == 2

    @pytest.mark.parametrize("is_stopped", [False, True])
    async def test_one_turn_commits_endings_beside_retries(self, store: Store, is_stopped: bool) -> None:
        ids = await add(store, new_task(), new_task(), new_task())
        first, again, last = await claim(store, *ids)
        if is_stopped:
            await store.cancel([last.id], NOW)
        done = End(Ending.COMPLETED, "1")
        verdicts = (first, done), (again, TryAgain("e", NOW + 9000)), (last, done)
        result = await store.turn(
            Turn(now=NOW + 500, judged=[Judged(task, verdict, 500) for task, verdict in verdicts])
        )
        assert result.lost == ({(last.id, 1): "cancel"} if is_stopped else {})
        assert (await ended(store, first.id)).result == 1
        assert (await active(store, again.id)).status is Status.SCHEDULED
        assert await store.count(Filters(status=Ending.COMPLETED)) == (1 if is_stopped else 2)

    @pytest.mark.parametrize("is_stopped", [False, True])
    async def test_a_turn_that_only_ends_and_claims_does_both(self, store: Store, is_stopped: bool) -> None:
        ids = await add(store, *(new_task(tags={"n": str(n)}) for n in range(4)))
        running = await claim(store, *ids[:2])
        if is_stopped:
            await store.cancel([ids[1]], NOW)
        starts = Starts(claims=ids[2:], prefetch={ids[3]}, controls_version=(await store.controls()).version)
        done = End(Ending.COMPLETED, "1")
        result = await store.turn(
            Turn(now=NOW + 500, judged=[Judged(task, done, 500) for task in running], starts=starts)
        )
        assert [(task.id, bool(task.prefetched)) for task in result.claimed] == [(ids[2], False), (ids[3], True)]
        assert result.lost == ({(ids[1], 1): "cancel"} if is_stopped else {})
        assert (await active(store, ids[2])).started_at is not None
        assert (await ended(store, ids[0])).tags == {"n": "0"}
        assert await store.count(Filters(status=Ending.COMPLETED)) == (1 if is_stopped else 2)
        counts = await store.counts()
        assert (counts["running"], counts["pending"]) == (2 if is_stopped else 1, 1)

    async def test_an_attempt_leaves_its_error_unless_it_has_lost_its_token(self, store: Store) -> None:
        (id,) = await add(store, new_task())
        (old,) = await claim(store, id)
        await commit(store, old, Return())
        (new,) = await claim(store, id)
        for task, error in ((old, "of the old"), (new, "of the new")):
            judged = Judged(task, TryAgain(error, None), 500, failure=AttemptFailure("failed", error))
            await store.turn(Turn(now=NOW + 500, judged=[judged]))
        (left,) = (await active(store, id)).errors
        assert (left.attempt, left.error, left.duration) == (2, "of the new", timedelta(seconds=0.5))
        (group,) = await store.error_groups(NOW)
        assert (group.type, group.exception, group.location, group.count) == (TYPE, "failed", None, 1)
        assert await store.error_groups(NOW + 501) == []

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

    async def test_a_claim_that_is_returned_unstarted_leaves_no_trace(self, store: Store) -> None:
        (id,) = await add(store, new_task(ttl_ms=1000))
        before = await active(store, id)
        (task,) = await claim(store, id)
        await store.turn(Turn(now=NOW + 1, returns=[task]))
        assert await active(store, id) == before
        (task,) = await claim(store, id, now=NOW + 2)
        assert (task.attempt, task.expires_at, task.deadline) == (1, NOW + 1002, None)
        await commit(store, task, TryAgain("wrong", None))
        (task,) = await claim(store, id, now=NOW + 700)
        assert task.deadline == NOW + 1002
        await store.turn(Turn(now=NOW + 701, returns=[task]))
        returned = await active(store, id)
        assert (returned.attempt, returned.expires_at) == (1, before.created_at + timedelta(milliseconds=1002))

    async def test_a_delayed_retry_waits_and_is_promoted_when_due(self, store: Store) -> None:
        (id,) = await add(store, new_task())
        (task,) = await claim(store, id)
        await commit(store, task, TryAgain("e", NOW + 1000))
        assert (await active(store, id)).status == Status.SCHEDULED
        result = await store.turn(Turn(now=NOW + 999, upkeep=TurnUpkeep(promote=True)))
        # The aging clock continues: its place in the queue is that of its submission.
        place = Lane("", 128, TYPE), Place(NOW, id, id)
        assert (result.commit.released, result.next_due) == ([], DueFront([DueTask(NOW + 1000, *place)]))
        result = await store.turn(Turn(now=NOW + 1000, upkeep=TurnUpkeep(promote=True)))
        assert result.next_due == DueFront([])
        assert [(task.lane, task.place) for task in result.commit.released] == [place]

    async def test_a_promotion_reads_nothing_but_the_places_of_what_it_promotes(self, store: Store) -> None:
        await add(store, *(new_task(group=f"g{n}") for n in range(50)))
        due, later = await add(
            store,
            new_task(group="g7", status=Status.SCHEDULED, due_at=NOW + 1000, queued_at=NOW + 1000),
            new_task(group="g8", status=Status.SCHEDULED, due_at=NOW + 2000, queued_at=NOW + 2000),
        )
        result = await store.turn(Turn(now=NOW + 1500, upkeep=TurnUpkeep(promote=True)))
        assert [(task.lane, task.place) for task in result.commit.released] == [
            (Lane("g7", 128, TYPE), Place(NOW + 1000, due, due)),
        ]
        next_one = DueTask(NOW + 2000, Lane("g8", 128, TYPE), Place(NOW + 2000, later, later))
        assert (result.lanes, result.fronts, result.next_due) == (None, {}, DueFront([next_one]))

    @pytest.mark.parametrize("survey", [False, True])
    async def test_a_turn_reads_the_places_of_the_next_delayed_tasks(self, store: Store, survey: bool) -> None:
        delayed = [
            new_task(status=Status.SCHEDULED, due_at=NOW + n, queued_at=NOW + n, priority=200 - n) for n in range(1, 22)
        ]
        ids = await add(store, *delayed)
        tasks = [DueTask(NOW + n, Lane("", 200 - n, TYPE), Place(NOW + n, id, id)) for n, id in enumerate(ids, start=1)]
        look = Turn(now=NOW, upkeep=TurnUpkeep(promote=not survey), look=Look(survey=survey, slots=1))
        # More tasks follow the 20th.
        assert (await store.turn(look)).next_due == DueFront(tasks[:20], NOW + 20)
        promote = Turn(now=NOW + 3, upkeep=TurnUpkeep(promote=True))
        assert (await store.turn(promote)).next_due == DueFront(tasks[3:])

    async def test_a_task_that_is_due_and_claimed_in_one_turn_shares_its_transaction(self, store: Store) -> None:
        done, next_one = await add(store, new_task(), new_task())
        (task,) = await claim(store, done)
        result = await store.turn(
            Turn(now=NOW, judged=[Judged(task, End(Ending.COMPLETED, "1"), 1)], starts=Starts(claims=[next_one]))
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
        await store.shift_clock(-5)
        result = await store.turn(Turn(now=NOW + 5, upkeep=TurnUpkeep(promote=True)))
        assert [task.place for task in result.commit.released] == [Place(NOW + 5, relative, relative)]
        place = Lane("", 128, TYPE), Place(NOW + 20, absolute, absolute)
        assert result.next_due == DueFront([DueTask(NOW + 20, *place)])
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
        result = await store.turn(Turn(now=NOW + 10, upkeep=TurnUpkeep(expire=True)))
        assert sorted(gone.task.id for gone in result.commit.ended) == [stale, delayed]
        assert result.next_expiry == NOW + 11
        assert (await ended(store, stale)).ending == Ending.EXPIRED
        assert (await active(store, fresh)).status == Status.PENDING
        assert (await active(store, started)).status == Status.RUNNING
