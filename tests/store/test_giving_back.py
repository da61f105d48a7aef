"""Paused time is given back in batches, on every store: exact at every moment, and in any order."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from taskmill.core.ports import Store
from taskmill.model.controls import EVERYTHING, Scope, ScopeKind
from taskmill.model.status import Ending, OnDuplicate, Status
from taskmill.model.task import Lane, Place
from taskmill.model.turn import Look, Turn, TurnUpkeep
from taskmill.store.opening import open_store
from taskmill.store.sql import paused_time
from tests.repetition import seeds
from tests.store.clocks import StillClock
from tests.store.contract.paused_time import PausedTime
from tests.store.contract.samples import NOW, TYPE, active, add, claim, ended, new_task

G = Scope(ScopeKind.GROUP, "g")
LANE = Lane("g", 128, TYPE)


@pytest.fixture
async def store(any_store: str) -> AsyncIterator[Store]:
    store = open_store(any_store, "full", StillClock())
    await store.open()
    yield store
    await store.close()


@pytest.fixture(autouse=True)
def _small_bites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paused_time, "BITE", 2)
    monkeypatch.setattr(paused_time, "LOOKED_AT", 3)


async def give_back_everything(store: Store) -> int:
    """Give back all paused time; return the number of batches."""
    bites = 1
    while await store.give_back():
        bites += 1
    return bites


async def places(store: Store, now: int) -> list[Place]:
    return (await store.turn(Turn(now=now, look=Look(survey=True)))).fronts.get(LANE, [])


@pytest.mark.parametrize("seed", seeds(6))
async def test_whatever_happens_between_two_bites_each_pause_counts_once(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    trial = PausedTime(store, seed)
    for _ in range(60):
        await trial.step()
        if chance.random() < 0.3:
            await store.give_back()
    await trial.resume_everything()
    if chance.random() < 0.5:
        await give_back_everything(store)
    await trial.check()
    await give_back_everything(store)
    assert (await store.controls()).ended_pauses == []


async def test_a_resume_rewrites_a_bite_and_the_others_are_read_as_if_it_had_rewritten_them_all(store: Store) -> None:
    ids = await add(store, *(new_task(group="g", queued_at=NOW + n, expires_at=NOW + 100) for n in range(10)))
    await store.pause(G, NOW + 20, None)
    (during,) = await add(store, new_task(group="g", created_at=NOW + 30, queued_at=NOW + 30, expires_at=NOW + 130))
    await store.resume(G, NOW + 1020)
    assert len((await store.controls()).ended_pauses) == 1
    expected = [Place(NOW + n + 1000, id, id) for n, id in enumerate(ids)] + [Place(NOW + 1020, during, during)]
    for _ in range(4):
        assert await places(store, NOW + 1020) == expected, "tasks past their stored deadlines are still found"
        await store.give_back()
    await give_back_everything(store)
    assert await places(store, NOW + 1020) == expected
    assert (await store.controls()).ended_pauses == []


async def test_nothing_expires_before_it_was_given_its_time_back(store: Store) -> None:
    ids = await add(store, *(new_task(group="g", expires_at=NOW + 100) for _ in range(9)))
    (other,) = await add(store, new_task(expires_at=NOW + 100))
    await store.pause(G, NOW + 20, None)
    await store.resume(G, NOW + 1020)
    await store.turn(Turn(now=NOW + 1050, upkeep=TurnUpkeep(expire=True)))
    assert (await ended(store, other)).ending == Ending.EXPIRED
    assert [(await active(store, id)).status for id in ids] == [Status.PENDING] * 9
    await give_back_everything(store)
    result = await store.turn(Turn(now=NOW + 1099, upkeep=TurnUpkeep(expire=True)))
    assert (result.commit.ended, result.next_expiry) == ([], NOW + 1100)
    for _ in range(2):
        await store.turn(Turn(now=NOW + 1100, upkeep=TurnUpkeep(expire=True)))
    assert [(await ended(store, id)).ending for id in ids] == [Ending.EXPIRED] * 9


async def test_a_task_that_starts_before_its_turn_has_its_times_all_the_same(store: Store) -> None:
    ids = await add(store, *(new_task(group="g", expires_at=NOW + 100) for _ in range(9)))
    await store.pause(G, NOW + 20, None)
    await store.resume(G, NOW + 1020)
    (first,) = await claim(store, ids[0], now=NOW + 1050)
    assert (first.queued_at, first.expires_at) == (NOW + 1000, NOW + 1100)
    assert await claim(store, ids[1], now=NOW + 1100) == [], "its deadline has passed"
    await give_back_everything(store)
    (third,) = await claim(store, ids[2], now=NOW + 1050)
    assert (third.queued_at, third.expires_at) == (NOW + 1000, NOW + 1100)


async def test_a_replacement_takes_the_true_place_of_what_it_replaces(store: Store) -> None:
    ids = await add(store, *(new_task(group="g", key=f"{n}", queued_at=NOW + n) for n in range(9)))
    await store.pause(G, NOW + 20, None)
    await store.resume(G, NOW + 1020)
    (stored,) = await store.add(
        [
            new_task(
                group="g",
                key="0",
                created_at=NOW + 1030,
                queued_at=NOW + 1030,
                on_duplicate=OnDuplicate.SUPERSEDE,
            )
        ]
    )
    assert stored.replaced_id == ids[0]
    await give_back_everything(store)
    (replacement,) = await claim(store, stored.id, now=NOW + 2000)
    assert replacement.queued_at == NOW + 1000


async def test_an_interrupted_return_of_time_continues_where_it_stopped(any_store: str) -> None:
    if any_store == ":memory:":
        pytest.skip("it ends with its process")
    store = open_store(any_store, "full", StillClock())
    await store.open()
    ids = await add(store, *(new_task(group="g", queued_at=NOW + n) for n in range(20)))
    await store.pause(G, NOW + 50, None)
    await store.resume(G, NOW + 1050)
    await store.give_back()
    await store.close()
    store = open_store(any_store, "full", StillClock())
    await store.open()
    assert len((await store.controls()).ended_pauses) == 1
    assert 8 <= await give_back_everything(store) <= 10, "two batches were done before"
    assert await places(store, NOW + 2000) == [Place(NOW + n + 1000, id, id) for n, id in enumerate(ids)]
    await store.close()


@pytest.mark.parametrize("by", [5000, -5000])
async def test_a_step_of_the_clock_moves_what_is_owed_with_it(store: Store, by: int) -> None:
    ids = await add(store, *(new_task(group="g", queued_at=NOW + n) for n in range(9)))
    await store.pause(EVERYTHING, NOW + 20, None)
    await store.resume(EVERYTHING, NOW + 1020)
    await store.shift_clock(by)
    await give_back_everything(store)
    assert await places(store, NOW + 9000) == [Place(NOW + n + 1000 + by, id, id) for n, id in enumerate(ids)]
