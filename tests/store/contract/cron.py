"""Cron tasks: declaring them, firing them, and keeping their state consistent with the tasks they fire."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any

import msgspec
import pytest

from taskmill.core.cron_port import CronDeclaration, CronRow, Firings, Occasion
from taskmill.core.ports import Store
from taskmill.errors import DuplicateTask
from taskmill.model.attempt import End, MakeWay, Return, TryAgain, Verdict
from taskmill.model.cron import CronState, RunOutcome
from taskmill.model.status import Ending, OnDuplicate, Status
from taskmill.model.turn import Judged, Turn, TurnUpkeep
from taskmill.policy.cron.expression import CronExpression
from taskmill.policy.cron.registrations import Registration
from tests.store.contract.samples import NOW, TYPE, active, add, claim, commit, ended, new_task

MINUTE = 60_000
DAWN = NOW - NOW % MINUTE
"""The beginning of a minute."""
EACH_MINUTE = CronExpression.parse("* * * * *")
UNLIMITED = '{"retry":{"retries":1000}}'


def declaration(name: str = "tick", *, delay_ms: int = 5000, type: str = TYPE) -> CronDeclaration:
    overrides = f'{{"retry":{{"retries":1000,"initial_ms":{delay_ms}}}}}'
    return CronDeclaration(Registration(name, EACH_MINUTE, dict, delay_ms), type, "{}", overrides)


async def begin(store: Store, *declared: CronDeclaration, now: int = DAWN) -> Sequence[CronState]:
    return (await store.begin_cron(declared, now, UTC)).states


async def fire(store: Store, now: int = DAWN, *names: str, **changes: Any) -> Firings:
    task = new_task(overrides=UNLIMITED, created_at=now, queued_at=now, **changes)
    return await store.fire_cron([Occasion(name, EACH_MINUTE, task) for name in names or ("tick",)], now, UTC)


async def judge(store: Store, id: int, verdict: Verdict, now: int) -> list[CronState]:
    """Claim the task, and end its attempt with ``verdict`` one millisecond later."""
    (task,) = await claim(store, id, now=now - 1)
    result = await store.turn(Turn(now=now, judged=[Judged(task, verdict, 1)]))
    return result.commit.crons


async def the_row(store: Store, name: str = "tick") -> CronRow:
    (row,) = await store.cron_rows([name])
    return row


class CronTasks:
    """One law per test."""

    async def test_declared_tasks_are_stored_in_their_order_and_no_others(self, store: Store) -> None:
        assert [state.name for state in await begin(store, declaration("b"), declaration("a"))] == ["b", "a"]
        begun = await store.begin_cron([declaration("a"), declaration("c")], DAWN, UTC)
        assert (begun.difference.added, begun.difference.removed) == (("c",), ("b",))
        assert [row.state.name for row in await store.cron_rows()] == ["a", "c"]
        assert (await store.begin_cron([declaration("a"), declaration("c")], DAWN, UTC)).difference.total == 0
        assert list(await begin(store)) == []
        assert await store.cron_rows() == []

    async def test_a_due_cron_task_fires_once_and_not_while_it_is_active(self, store: Store) -> None:
        await begin(store, declaration())
        (fired,) = (await fire(store)).fired
        assert (fired.name, fired.occurrence) == ("tick", DAWN)
        assert (await active(store, fired.id)).status == Status.PENDING
        row = await the_row(store)
        assert (row.task_id, row.runs, row.state.is_running) == (fired.id, 1, True)
        assert (await fire(store, DAWN + 5 * MINUTE)).fired == ()
        await judge(store, fired.id, End(Ending.COMPLETED, "null"), DAWN + 10)
        assert (await fire(store, DAWN + 20)).fired == ()
        (again,) = (await fire(store, DAWN + 3 * MINUTE)).fired
        assert again.occurrence == DAWN + 3 * MINUTE

    @pytest.mark.parametrize(
        ("verdict", "outcome", "is_over"),
        [
            (End(Ending.COMPLETED, "null"), RunOutcome.SUCCEEDED, True),
            (End(Ending.FAILED, error="no"), RunOutcome.FAILED, True),
            (End(Ending.DEAD_LETTER, error="no"), RunOutcome.FAILED, True),
            (End(Ending.DEAD_LETTER, error="crashed 3 times"), RunOutcome.QUARANTINED, True),
            (TryAgain("no", DAWN + 9000), RunOutcome.FAILED, False),
            (Return(), RunOutcome.INTERRUPTED, False),
            (Return(crashed=True), RunOutcome.INTERRUPTED, False),
        ],
    )
    async def test_how_an_attempt_ended_is_noted_with_it(
        self, store: Store, verdict: Verdict, outcome: RunOutcome, is_over: bool
    ) -> None:
        await begin(store, declaration())
        (fired,) = (await fire(store)).fired
        (told,) = await judge(store, fired.id, verdict, DAWN + 4000)
        row = await the_row(store)
        assert row.state == told
        assert (told.last_outcome, told.last_attempt_at) == (outcome, DAWN + 3999)
        assert (row.task_id, told.firing is None) == ((None, True) if is_over else (fired.id, False))
        if isinstance(verdict, TryAgain):
            assert told.retry_at == verdict.due_at

    async def test_a_preempted_firing_still_counts_as_running(self, store: Store) -> None:
        await begin(store, declaration())
        (fired,) = (await fire(store)).fired
        assert await judge(store, fired.id, MakeWay(), DAWN + 10) == []
        assert (await the_row(store)).state.is_running
        assert (await fire(store, DAWN + MINUTE)).fired == ()

    async def test_an_occurrence_replaces_what_waits_for_its_retry(self, store: Store) -> None:
        await store.publish_types({TYPE: '{"has_on_cancel":false}'})
        await begin(store, declaration())
        (first,) = (await fire(store, DAWN, key="k")).fired
        (dependent,) = await add(store, new_task())
        await judge(store, first.id, TryAgain("no", DAWN + 10 * MINUTE), DAWN + 10)
        (second,) = (await fire(store, DAWN + MINUTE, key="k")).fired
        assert (await ended(store, first.id)).ending == Ending.SUPERSEDED
        assert (await active(store, second.id)).status == Status.PENDING
        assert (await active(store, dependent)).status == Status.PENDING
        assert (await the_row(store)).task_id == second.id

    @pytest.mark.parametrize("key", [None, "k"])
    async def test_an_occurrence_waits_for_the_hook_of_what_it_replaces(self, store: Store, key: str | None) -> None:
        await store.publish_types({TYPE: '{"has_on_cancel":true}'})
        await begin(store, declaration())
        (first,) = (await fire(store, DAWN, key=key)).fired
        await judge(store, first.id, TryAgain("no", DAWN + 10 * MINUTE), DAWN + 10)
        (second,) = (await fire(store, DAWN + MINUTE, key=key)).fired
        assert (await active(store, second.id)).status == Status.BLOCKED
        assert (await the_row(store)).task_id == second.id
        (hook,) = await claim(store, first.id, now=DAWN + MINUTE)
        await commit(store, hook, End(Ending.SUPERSEDED), stopped=True)
        assert (await ended(store, first.id)).ending == Ending.SUPERSEDED
        assert (await active(store, second.id)).status == Status.PENDING
        assert (await the_row(store)).task_id == second.id

    async def test_a_retry_is_due_at_an_instant_and_taken_along_by_a_large_step_back_alone(self, store: Store) -> None:
        await begin(store, declaration())
        (fired,) = (await fire(store)).fired
        await judge(store, fired.id, TryAgain("no", DAWN + 10 * MINUTE), DAWN + 10)
        for step, due in ((30_000, 10), (3_600_000, 10), (-30_000, 10), (-MINUTE * 2, 8)):
            await store.shift_clock(step)
            record = await active(store, fired.id)
            assert record.run_at is not None
            assert round(record.run_at.timestamp() * 1000) == DAWN + due * MINUTE
            assert (await the_row(store)).state.retry_at == DAWN + due * MINUTE

    async def test_recovery_interrupts_and_quarantines(self, store: Store) -> None:
        await begin(store, declaration())
        (fired,) = (await fire(store)).fired
        for _ in range(2):
            await claim(store, fired.id, now=DAWN + 10)
            await store.recover(DAWN + 20)
            row = await the_row(store)
            assert (row.task_id, row.state.last_outcome) == (fired.id, RunOutcome.INTERRUPTED)
            assert row.state.retry_at == DAWN + 20
            await begin(store, declaration(), now=DAWN + 30)
            assert (await the_row(store)).state.firing == row.state.firing, "a start counts no crash again"
        await claim(store, fired.id, now=DAWN + 40)
        await store.recover(DAWN + 50)
        row = await the_row(store)
        assert (row.task_id, row.state.last_outcome) == (None, RunOutcome.QUARANTINED)
        assert len((await fire(store, DAWN + MINUTE)).fired) == 1

    async def test_a_firing_that_waits_for_a_slot_is_at_work_over_a_restart(self, store: Store) -> None:
        await begin(store, declaration())
        (fired,) = (await fire(store)).fired
        (state,) = await begin(store, declaration(), now=DAWN + 5 * MINUTE)
        assert (state.is_running, state.last_outcome) == (True, None)
        assert (await fire(store, DAWN + 5 * MINUTE)).fired == ()
        (task,) = await claim(store, fired.id, now=DAWN + 6 * MINUTE)
        assert task.cron == "tick"
        assert (await the_row(store)).state.since == DAWN + 6 * MINUTE

    async def test_cancelling_ends_the_firing(self, store: Store) -> None:
        await begin(store, declaration())
        (fired,) = (await fire(store)).fired
        result = await store.cancel([fired.id], DAWN + 10)
        assert [state.last_outcome for state in result.commit.crons] == [RunOutcome.CANCELLED]
        assert (await the_row(store)).task_id is None

    async def test_a_cron_task_that_is_no_longer_declared_is_cancelled(self, store: Store) -> None:
        await begin(store, declaration())
        (fired,) = (await fire(store)).fired
        begun = await store.begin_cron([], DAWN + 10, UTC)
        assert [gone.task.id for gone in begun.commit.ended] == [fired.id]
        assert (await ended(store, fired.id)).ending == Ending.CANCELLED

    async def test_a_retry_runs_as_it_is_declared_now(self, store: Store) -> None:
        await begin(store, declaration())
        (fired,) = (await fire(store, key="k")).fired
        await judge(store, fired.id, TryAgain("no", DAWN + 10 * MINUTE), DAWN + 10)
        await begin(store, declaration(delay_ms=7000, type="d::other"), now=DAWN + 20)
        record = await active(store, fired.id)
        assert (record.type, record.key, record.status) == ("d::other", None, Status.SCHEDULED)
        assert record.run_at is not None
        assert round(record.run_at.timestamp() * 1000) == DAWN + 10 * MINUTE
        await store.turn(Turn(now=DAWN + 10 * MINUTE, upkeep=TurnUpkeep(promote=True)))
        (task,) = await claim(store, fired.id, now=DAWN + 10 * MINUTE)
        assert msgspec.json.decode(task.overrides or "")["retry"]["initial_ms"] == 7000

    async def test_a_key_that_another_holds_leaves_the_occurrence_to_it(self, store: Store) -> None:
        await begin(store, declaration("a"), declaration("b"))
        (holder,) = await add(store, new_task(key="k"))
        firings = await fire(store, DAWN, "a", "b", key="k")
        assert (firings.fired, [name for name, _ in firings.left]) == ([], ["a", "b"])
        assert all(state.firing is None and not state.is_running for state in firings.states)
        assert {(state.last_attempt_at, state.last_outcome) for state in firings.states} == {(None, None)}
        await store.cancel([holder], DAWN)
        assert (await fire(store, DAWN + 10, "a", "b", key="k")).fired == (), "the occurrence is settled"
        refused = await fire(store, DAWN + MINUTE, "a", "b", key="k", on_duplicate=OnDuplicate.REJECT)
        assert ([one.name for one in refused.fired], [name for name, _ in refused.left]) == (["a"], ["b"])

    async def test_taking_the_key_of_a_firing_ends_it(self, store: Store) -> None:
        await begin(store, declaration())
        await fire(store, key="k")
        await add(store, new_task(key="k", on_duplicate=OnDuplicate.SUPERSEDE))
        row = await the_row(store)
        assert (row.task_id, row.state.last_outcome) == (None, RunOutcome.CANCELLED)

    async def test_a_revived_dead_letter_is_the_firing_again_unless_there_is_another(self, store: Store) -> None:
        await begin(store, declaration())
        for minute in (0, 1):
            (fired,) = (await fire(store, DAWN + minute * MINUTE, tags={"cron": "tick"})).fired
            await judge(store, fired.id, End(Ending.DEAD_LETTER, error="crashed 3 times"), DAWN + minute * MINUTE + 10)
        await store.revive(fired.id, DAWN + MINUTE + 20)
        row = await the_row(store)
        assert (row.task_id, row.state.retry_at) == (fired.id, DAWN + MINUTE + 20)
        with pytest.raises(DuplicateTask):
            await store.revive(fired.id - 1, DAWN + MINUTE + 30)
        await judge(store, fired.id, End(Ending.COMPLETED, "null"), DAWN + MINUTE + 40)
        assert (await the_row(store)).state.last_outcome == RunOutcome.SUCCEEDED
