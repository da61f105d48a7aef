"""Cancelling, recovering, reviving and pruning."""

from __future__ import annotations

import pytest

from taskmill.core.ports import Store
from taskmill.errors import DuplicateTask
from taskmill.model.attempt import End, MakeWay, Return, TryAgain
from taskmill.model.commit import Commit
from taskmill.model.filters import Filters
from taskmill.model.settings import Retention
from taskmill.model.status import Ending, OnDuplicate, Status
from taskmill.model.turn import Judged, Look, Turn, TurnUpkeep
from tests.store.contract.samples import NOW, TYPE, active, add, claim, commit, ended, new_task


class CancellingAndUpkeep:
    """One law per test."""

    async def test_cancelling_ends_what_waits_and_asks_what_runs(self, store: Store) -> None:
        waiting, running = await add(store, new_task(key="k"), new_task())
        (task,) = await claim(store, running)
        result = await store.cancel([waiting, running, 999], NOW)
        assert result.ids == [waiting, running]
        assert [gone.task.id for gone in result.commit.ended] == [waiting]
        assert result.commit.stopping == [(running, "cancel")]
        assert (await ended(store, waiting)).ending == Ending.CANCELLED
        survey = await store.turn(Turn(now=NOW, look=Look(survey=True)))
        assert survey.stops == [(running, "cancel")]
        # A verdict that ignores the request to stop is refused; one that honours it is accepted.
        assert (await commit(store, task, End(Ending.COMPLETED, "1"))).lost == {(running, 1): "cancel"}
        assert (await commit(store, task, TryAgain("e", None))).lost == {(running, 1): "cancel"}
        assert (await commit(store, task, End(Ending.CANCELLED), stopped=True)).lost == {}
        assert (await ended(store, running)).ending == Ending.CANCELLED
        again = await store.cancel([waiting, running], NOW)
        assert (again.ids, again.commit) == ([], Commit())

    async def test_recovery_returns_running_tasks_without_cost_and_quarantines_poison(self, store: Store) -> None:
        (id,) = await add(store, new_task())
        for crashes in (1, 2):
            await claim(store, id)
            recovery = await store.recover(NOW)
            assert (recovery.returned, recovery.commit) == (1, Commit())
            record = await active(store, id)
            assert (record.status, record.retries, record.attempt) == (Status.PENDING, 0, crashes)
        await claim(store, id)
        recovery = await store.recover(NOW)
        assert [gone.task.id for gone in recovery.commit.ended] == [id]
        assert (await ended(store, id)).error == "crashed 3 times"
        assert (await store.recover(NOW)).returned == 0

    async def test_recovery_keeps_a_request_to_stop(self, store: Store) -> None:
        (id,) = await add(store, new_task())
        await claim(store, id)
        await store.cancel([id], NOW)
        await store.recover(NOW)
        result = await store.cancel([id], NOW)
        assert (result.ids, result.commit) == ([id], Commit())
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
        rules = Retention(max_count=None, per_status={"completed": 2}).rules()
        assert await store.prune(rules, NOW, 2) == 2
        assert await store.prune(rules, NOW, 2) == 1
        assert await store.prune(rules, NOW, 2) == 0
        completed = await store.history(Filters(status=Ending.COMPLETED))
        assert [record.id for record in completed] == [ids[9], ids[7]]
        assert await store.count(Filters(status=Ending.COMPLETED)) == 2
        assert await store.count(Filters(status=Ending.FAILED)) == 5
        assert (await store.stats("d::t")).count == 10, "statistics include pruned tasks"
        assert await store.history(Filters(tags={"n": "1"})) == []

    async def test_pruning_by_age(self, store: Store) -> None:
        ids = await add(store, *(new_task() for _ in range(4)))
        for number, task in enumerate(await claim(store, *ids)):
            await store.turn(Turn(now=NOW + number * 1000, judged=[Judged(task, End(Ending.COMPLETED, "1"), 1)]))
        assert await store.prune(Retention(max_count=None, max_age=1.5).rules(), NOW + 3000, 100) == 2
        assert [record.id for record in await store.history(Filters())] == [ids[3], ids[2]]

    async def test_pruning_keeps_the_newest_of_all_endings_together(self, store: Store) -> None:
        ids = await add(store, *(new_task() for _ in range(6)))
        for number, task in enumerate(await claim(store, *ids)):
            verdict = End(Ending.COMPLETED if number % 2 else Ending.FAILED, "1")
            await store.turn(Turn(now=NOW + number, judged=[Judged(task, verdict, 1)]))
        assert await store.prune(Retention(max_count=3).rules(), NOW, 100) == 3
        assert [record.id for record in await store.history(Filters())] == ids[:2:-1]

    async def test_a_request_to_stop_outlives_crashes_and_deadlines(self, store: Store) -> None:
        (id,) = await add(store, new_task(expires_at=NOW + 10))
        await claim(store, id)
        await store.cancel([id], NOW)
        for _ in range(5):
            assert (await store.recover(NOW)).commit.ended == []
            assert (await store.turn(Turn(now=NOW + 20, upkeep=TurnUpkeep(expire=True)))).commit.ended == []
            assert (await store.turn(Turn(now=NOW + 20, look=Look(survey=True)))).hooks == [id]
            assert [task.stop for task in await claim(store, id, now=NOW + 20)] == ["cancel"]
        # Its hook has had as many attempts as the handler; a hook that keeps killing its process must not run forever.
        assert [gone.task.id for gone in (await store.recover(NOW)).commit.ended] == [id]
        assert (await ended(store, id)).ending == Ending.CANCELLED

    async def test_an_attempt_interrupted_after_a_start_in_time_runs_again_but_a_retry_does_not(
        self, store: Store
    ) -> None:
        (id,) = await add(store, new_task(expires_at=NOW + 10))
        (task,) = await claim(store, id)
        await commit(store, task, Return())
        assert (await store.turn(Turn(now=NOW + 10, upkeep=TurnUpkeep(expire=True)))).commit.ended == []
        (task,) = await claim(store, id, now=NOW + 10)
        await commit(store, task, TryAgain("e", None))
        assert await claim(store, id, now=NOW + 10) == []
        assert [
            gone.task.id for gone in (await store.turn(Turn(now=NOW + 10, upkeep=TurnUpkeep(expire=True)))).commit.ended
        ] == [id]

    async def test_a_started_task_has_its_hook_run_before_it_ends(self, store: Store) -> None:
        await store.publish_types({TYPE: '{"has_on_cancel":true}'})
        cancelled, replaced = await add(store, new_task(key="a"), new_task(key="b"))
        made_way, failed = await claim(store, cancelled, replaced)
        judged = [Judged(made_way, MakeWay(), 1), Judged(failed, TryAgain("no", None), 1)]
        await store.turn(Turn(now=NOW, judged=judged))
        result = await store.cancel([cancelled], NOW)
        assert (result.ids, result.commit.hooks, result.commit.ended) == ([cancelled], [cancelled], [])
        assert (await store.cancel([cancelled], NOW)).commit.hooks == []
        (stored,) = await store.add([new_task(key="b", on_duplicate=OnDuplicate.SUPERSEDE)])
        (again,) = await store.add([new_task(key="a")])
        assert (stored.kind, again.kind) == ("superseded", "inserted")
        assert await claim(store, stored.id, again.id) == []
        found = await store.turn(Turn(now=NOW, look=Look(survey=True)))
        assert (sorted(found.hooks), found.has_preempted) == ([cancelled, replaced], False)
        stops: dict[str | None, Ending] = {"cancel": Ending.CANCELLED, "supersede": Ending.SUPERSEDED}
        for task in await claim(store, *found.hooks):
            await commit(store, task, End(stops[task.stop]), stopped=True)
        assert (await ended(store, cancelled)).ending == Ending.CANCELLED
        assert (await ended(store, replaced)).ending == Ending.SUPERSEDED
        assert [task.id for task in await claim(store, stored.id, again.id)] == [stored.id, again.id]
