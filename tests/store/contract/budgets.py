"""IO budgets, moved bytes, and the stored readings of the machine."""

from __future__ import annotations

import pytest

from taskmill.core.ports import Store
from taskmill.model.attempt import End, MakeWay, Return, StopReason, TryAgain, Verdict
from taskmill.model.io_budget import LEARN, MOST_BYTES, IoBudget, budget_to_store
from taskmill.model.machine import Capacity, Limit, Machine
from taskmill.model.status import Ending, OnDuplicate
from taskmill.model.task import Claimed, Lane, Place
from taskmill.model.turn import Judged, Look, Turn, TurnResult, TurnUpkeep
from tests.store.contract.samples import NOW, TYPE, active, add, claim, ended, new_task

BUDGET = IoBudget(disk_read=1, disk_write=2, net_rx=3, net_tx=MOST_BYTES)
STORED = budget_to_store(BUDGET)


async def commit_moved(store: Store, task: Claimed, verdict: Verdict, moved: IoBudget | None) -> TurnResult:
    judged = Judged(task, verdict, 500, io=budget_to_store(moved))
    return await store.turn(Turn(now=NOW + 500, judged=[judged]))


class Budgets:
    """One law per test."""

    @pytest.mark.parametrize(
        ("stored", "budget"), [(None, None), (LEARN, None), (STORED, BUDGET), ('{"net_rx":7}', IoBudget(net_rx=7))]
    )
    async def test_a_budget_is_read_as_it_was_stored_wherever_the_task_is(
        self, store: Store, stored: str | None, budget: IoBudget | None
    ) -> None:
        (id,) = await add(store, new_task(io=stored))
        assert (await active(store, id)).io == budget
        survey = await store.turn(Turn(now=NOW, look=Look(survey=True)))
        assert survey.fronts == {Lane("", 128, TYPE): [Place(NOW, id, id, None, stored)]}
        (task,) = await claim(store, id)
        assert task.io == task.place.io == stored
        assert (await active(store, id)).io == budget
        await commit_moved(store, task, End(Ending.COMPLETED, "1"), None)
        record = await ended(store, id)
        assert (record.io, record.actual_io) == (budget, None)

    @pytest.mark.parametrize("verdict", [TryAgain("e", None), Return(), Return(crashed=True, error="signal 9")])
    async def test_a_budget_stays_with_its_task_over_attempts(self, store: Store, verdict: Verdict) -> None:
        (id,) = await add(store, new_task(io=STORED))
        (task,) = await claim(store, id)
        await commit_moved(store, task, verdict, None)
        survey = await store.turn(Turn(now=NOW, look=Look(survey=True)))
        assert survey.fronts == {Lane("", 128, TYPE): [Place(NOW, id, id, None, STORED)]}
        (task,) = await claim(store, id)
        assert task.io == STORED

    async def test_a_delayed_retry_and_a_preempted_task_return_with_their_budgets(self, store: Store) -> None:
        later, paused = await add(store, new_task(io=STORED), new_task(io=LEARN))
        one, two = await claim(store, later, paused)
        await commit_moved(store, one, TryAgain("e", NOW + 1000), None)
        await commit_moved(store, two, MakeWay(), None)
        result = await store.turn(Turn(now=NOW + 1000, upkeep=TurnUpkeep(promote=True)))
        assert [task.place for task in result.commit.released] == [Place(NOW, later, later, None, STORED)]
        result = await store.turn(Turn(now=NOW + 1000, upkeep=TurnUpkeep(resume_preempted=True)))
        assert [(task.id, task.place.io) for task in result.commit.released] == [(paused, LEARN)]

    async def test_a_replacement_has_the_budget_of_its_own_submission(self, store: Store) -> None:
        (old,) = await add(store, new_task(key="k", io=STORED))
        (stored,) = await store.add([new_task(key="k", io=LEARN, on_duplicate=OnDuplicate.SUPERSEDE)])
        (bare,) = await store.add([new_task(key="k", on_duplicate=OnDuplicate.SUPERSEDE)])
        assert (await ended(store, old)).io == BUDGET
        assert (await ended(store, stored.id)).ending == Ending.SUPERSEDED
        (task,) = await claim(store, bare.id)
        assert task.io is None

    async def test_a_duplicate_changes_no_budget(self, store: Store) -> None:
        (id,) = await add(store, new_task(key="k", io=STORED))
        for change in (OnDuplicate.SKIP, OnDuplicate.REQUEUE):
            await store.add([new_task(key="k", io=LEARN, priority=1, on_duplicate=change)])
        assert (await active(store, id)).io == BUDGET

    async def test_a_dead_letter_returns_with_its_budget_and_without_what_it_moved(self, store: Store) -> None:
        (id,) = await add(store, new_task(io=STORED))
        (task,) = await claim(store, id)
        await commit_moved(store, task, End(Ending.DEAD_LETTER, error="e"), IoBudget(5))
        assert (await ended(store, id)).actual_io == IoBudget(5)
        await store.revive(id, NOW)
        assert (await active(store, id)).io == BUDGET
        (task,) = await claim(store, id)
        assert task.io == STORED
        await commit_moved(store, task, End(Ending.COMPLETED, "1"), None)
        assert (await ended(store, id)).actual_io is None

    async def test_tasks_of_one_batch_keep_their_own_budgets(self, store: Store) -> None:
        texts = [None, STORED, LEARN, '{"disk_write":9}', None]
        ids = await add(store, *(new_task(io=text) for text in texts))
        assert [task.io for task in await claim(store, *ids)] == texts

    # Moved bytes

    @pytest.mark.parametrize("ending", list(Ending))
    async def test_the_io_of_an_attempt_is_in_history_and_learned_if_it_succeeded(
        self, store: Store, ending: Ending
    ) -> None:
        first, second = await add(store, new_task(), new_task(io=LEARN))
        one, two = await claim(store, first, second)
        await commit_moved(store, one, End(ending, "1"), BUDGET)
        await commit_moved(store, two, End(ending, "1"), IoBudget(disk_read=9))
        assert (await ended(store, first)).actual_io == BUDGET
        assert (await ended(store, second)).actual_io == IoBudget(disk_read=9)
        learned = (await store.moved_io()).get(TYPE)
        mean = (await store.stats(TYPE)).avg_io
        if ending is Ending.COMPLETED:
            assert learned is not None
            assert (learned.runs, learned.disk_read, learned.net_tx) == (2, 10, MOST_BYTES)
            assert mean == IoBudget(5, 1, 2, round(MOST_BYTES / 2))
        else:
            assert (learned, mean) == (None, None)

    async def test_an_attempt_that_is_over_keeps_and_teaches_nothing(self, store: Store) -> None:
        (id,) = await add(store, new_task())
        (old,) = await claim(store, id)
        await commit_moved(store, old, Return(), None)
        (new,) = await claim(store, id)
        assert (await commit_moved(store, old, End(Ending.COMPLETED, "1"), BUDGET)).lost
        await commit_moved(store, new, End(Ending.COMPLETED, "2"), None)
        assert (await ended(store, id)).actual_io is None
        assert await store.moved_io() == {}

    async def test_a_success_that_came_after_a_cancellation_teaches_nothing(self, store: Store) -> None:
        (id,) = await add(store, new_task())
        (task,) = await claim(store, id)
        await store.cancel([id], NOW)
        result = await commit_moved(store, task, End(Ending.COMPLETED, "1"), BUDGET)
        assert result.lost == {(id, task.attempt): StopReason.CANCEL}
        assert await store.moved_io() == {}

    async def test_types_are_learned_apart_and_no_sum_is_too_large(self, store: Store) -> None:
        ids = await add(store, *(new_task(type=f"d::{i % 2}") for i in range(2400)))
        judged = [
            Judged(task, End(Ending.COMPLETED, "1"), 1, io=budget_to_store(IoBudget(1, net_tx=MOST_BYTES)))
            for task in await claim(store, *ids)
        ]
        await store.turn(Turn(now=NOW, judged=judged))
        learned = await store.moved_io()
        assert {type: (moved.runs, moved.disk_read) for type, moved in learned.items()} == {
            "d::0": (1200, 1200),
            "d::1": (1200, 1200),
        }
        assert (await store.stats("d::0")).avg_io is not None

    # The machine

    async def test_the_reading_of_the_machine_is_read_back_and_replaced(self, store: Store) -> None:
        assert await store.machine() is None
        seen = Machine(
            known=Capacity(disk_write=5e8),
            capacity=Capacity(disk_write=1e8, net_rx=2.5),
            limits=(Limit(128, 0.75), Limit(192, 0.5)),
            easing=0.05,
            pressures={"cpu ü": 0.9},
            returns_below=0.7,
        )
        await store.note_machine(seen)
        assert await store.machine() == seen
        await store.note_machine(Machine())
        assert await store.machine() == Machine()
