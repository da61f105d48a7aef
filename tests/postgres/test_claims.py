"""A claim of the first task of a lane has the same effects as a claim by id."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from taskmill.core.clock import SystemClock
from taskmill.model.task import Lane
from taskmill.model.turn import Starts, Turn
from taskmill.store.postgres.store import PostgresStore
from tests.store.contract.cron import DAWN, begin, declaration, fire, the_row
from tests.store.contract.samples import NOW, TYPE, active, add, new_task


@pytest.fixture
async def store(postgres_store: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(postgres_store, "full", SystemClock())
    await opened.open()
    yield opened
    await opened.close()


async def test_a_task_that_was_about_to_start_when_it_was_stopped_runs_its_hook(
    store: PostgresStore, postgres_store: str
) -> None:
    stopped, other = await add(store, new_task(), new_task())
    with psycopg.connect(postgres_store) as connection:
        connection.execute("UPDATE taskmill_task SET stop = 'cancel', attempt = 1 WHERE id = %s", (stopped,))
    place = Lane("", 128, TYPE), 0
    turn = Turn(now=NOW, starts=Starts(hooks=[stopped], claims=[stopped, other], lanes={stopped: place, other: place}))
    claimed = (await store.turn(turn)).claimed
    assert {(task.id, task.stop) for task in claimed} == {(stopped, "cancel"), (other, None)}


async def test_an_attempt_of_a_firing_is_noted(store: PostgresStore) -> None:
    await begin(store, declaration())
    (fired,) = (await fire(store)).fired
    record = await active(store, fired.id)
    place = Lane(record.group, record.priority, record.type), 0
    turn = Turn(now=DAWN + 10, starts=Starts(claims=[fired.id], lanes={fired.id: place}))
    result = await store.turn(turn)
    assert [task.id for task in result.claimed] == [fired.id]
    assert (await the_row(store)).state.last_attempt_at == DAWN + 10
    assert [state.last_attempt_at for state in result.commit.crons] == [DAWN + 10]
