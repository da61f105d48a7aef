"""A turn that needs exclusive access takes the exclusive lock at once; other turns share the right to write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from taskmill.core.clock import SystemClock
from taskmill.model.attempt import End, MakeWay, Return, StopReason, TryAgain, Verdict, Wait
from taskmill.model.status import Ending
from taskmill.model.task import Claimed, Origin
from taskmill.model.turn import Judged, Starts, Turn
from taskmill.store.postgres.session import Session, Statements
from taskmill.store.postgres.store import PostgresStore
from taskmill.store.sql.connection import Cursor
from tests.store.contract.samples import NOW, add, claim, new_task

DONE = End(Ending.COMPLETED, "1")


@pytest.fixture
async def store(postgres_store: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_store, "full", SystemClock())
    await store.open()
    yield store
    await store.close()


async def _claimed(store: PostgresStore) -> Claimed:
    (task,) = await claim(store, *await add(store, new_task()))
    return task


@pytest.mark.parametrize(
    "verdict", [TryAgain("no", None), TryAgain("no", NOW + 1), Return(), MakeWay(), Wait("1")], ids=repr
)
async def test_a_task_that_returns_to_the_queue_costs_one_transaction(store: PostgresStore, verdict: Verdict) -> None:
    task = await _claimed(store)
    await store.turn(Turn(NOW, judged=[Judged(task, verdict, 1)]))
    assert store.restarts == 0


async def test_a_retry_does_not_keep_other_endings_off_the_fast_path(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, again, last = await claim(store, *await add(store, new_task(), new_task(), new_task()))
    executed: list[tuple[str, str]] = []

    def execute(self: Session, statement: str, parameters: Sequence[Any] = ()) -> Cursor:
        executed.append((statement, str(parameters)))
        return Statements.execute(self, statement, parameters)

    monkeypatch.setattr(Session, "execute", execute)
    verdicts = (first, DONE), (again, TryAgain("no", NOW + 1)), (last, DONE)
    await store.turn(Turn(NOW, judged=[Judged(task, verdict, 1, began_at=NOW) for task, verdict in verdicts]))
    written = {name: parameters for name, parameters in executed if name in ("note_begun", "held_tokens")}
    assert str(again.id) in written["held_tokens"]
    for task in (first, last):
        assert not any(f"[{task.id}," in parameters for parameters in written.values())


async def test_a_stopped_task_costs_one_transaction(store: PostgresStore) -> None:
    task = await _claimed(store)
    await store.cancel([task.id], NOW)
    task.stop = StopReason.CANCEL
    await store.turn(Turn(NOW, judged=[Judged(task, End(Ending.CANCELLED), 1, stopped=True)]))
    assert store.restarts == 0


async def test_the_endings_of_300_children_cost_one_transaction_each(store: PostgresStore) -> None:
    parent = await _claimed(store)
    origin = Origin(parent.id, parent.attempt, sibling=False, fail_fast=True, max_children=None, effective=128)
    children = [stored.id for stored in await store.spawn([new_task() for _ in range(300)], origin)]
    await store.turn(Turn(NOW, judged=[Judged(parent, Wait("1"), 1)]))
    while children:
        tasks = await claim(store, *children[:15])
        children = children[15:]
        await store.turn(Turn(NOW, judged=[Judged(task, DONE, 1) for task in tasks]))
    assert store.restarts == 0


async def test_plain_tasks_begin_and_end_without_the_exclusive_lock(store: PostgresStore, postgres_store: str) -> None:
    """A second store holds the right to write together with others; an exclusive transaction would wait for it."""
    import psycopg

    (first,) = await claim(store, *await add(store, new_task()))
    with psycopg.connect(postgres_store) as other:
        other.execute("LOCK TABLE taskmill_writing IN SHARE MODE")
        ids = await add(store, new_task())
        result = await store.turn(Turn(NOW, judged=[Judged(first, DONE, 1)], starts=Starts(claims=ids)))
        assert [task.id for task in result.claimed] == ids
    assert store.restarts == 0
