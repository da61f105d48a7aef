"""A turn that is delayed before its transaction: meanwhile other nodes took permits, and tasks expired."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import msgspec
import pytest

from taskmill import RateLimit
from taskmill.core.clock import SystemClock
from taskmill.core.ports import DispatchRight
from taskmill.model.cluster import NOWHERE, Admission, Start
from taskmill.model.controls import Scope, ScopeKind
from taskmill.model.turn import Look, Starts, Turn, TurnResult
from taskmill.policy.rates import full_bucket
from taskmill.store.postgres.store import PostgresStore
from tests.store.contract.samples import NOW, TYPE, add, new_task

STALL = 61
"""Seconds of delay: more than the clocks of nodes may differ."""
LIMIT = RateLimit(1, 1, burst=2)


class _MovedClock(SystemClock):
    """The system's clock, which the test can advance."""

    ahead = 0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class _Nodes:
    """Two nodes with one clock; the test can block the writer of the first."""

    def __init__(self, address: str) -> None:
        self.clock = _MovedClock()
        self.one, self.two = (PostgresStore(address, "full", self.clock) for _ in range(2))
        self._may_write = threading.Event()

    def hold_up(self) -> None:
        """Block the writer of the first node, as if its process was suspended."""
        self.one._writer._thread.start(self._may_write.wait, lambda _result, _wrong: None)

    def go_on(self) -> None:
        self._may_write.set()


@pytest.fixture
async def nodes(postgres_store: str) -> AsyncIterator[_Nodes]:
    nodes = _Nodes(postgres_store)
    rights: list[DispatchRight] = []
    for store in (nodes.one, nodes.two):
        await store.open()
        rights.append(await store.acquire_dispatch())
    yield nodes
    nodes.go_on()
    for store, right in zip((nodes.one, nodes.two), rights, strict=True):
        right.release()
        await store.close()


def _plan(ids: list[int], now: int) -> Turn:
    admission = Admission([Start(id, "g", TYPE) for id in ids], NOWHERE, {}, {}, {}, {}, None, 8)
    buckets = [(Scope(ScopeKind.GROUP, "g"), LIMIT, full_bucket(LIMIT, now))]
    return Turn(now=now, starts=Starts(claims=ids, admission=admission, rates=buckets), look=Look(slots=8))


async def _held_up(nodes: _Nodes, turn: Turn) -> asyncio.Task[TurnResult]:
    """Start a turn of the first node, and let time pass before its transaction."""
    turn = msgspec.structs.replace(turn, planned_at=nodes.clock.monotonic())
    nodes.hold_up()
    late = asyncio.create_task(nodes.one.turn(turn))
    while not nodes.one._writer._working:
        await asyncio.sleep(0)
    nodes.clock.ahead += STALL
    return late


async def _started(store: PostgresStore, ids: list[int]) -> int:
    """Return how many of these tasks a node may start now."""
    return len((await store.turn(_plan(ids, NOW + STALL * 1000))).claimed)


async def test_a_turn_that_was_held_up_does_not_set_back_a_bucket_from_which_others_have_taken(nodes: _Nodes) -> None:
    ids = await add(nodes.one, *(new_task(group="g") for _ in range(6)))
    late = await _held_up(nodes, _plan(ids[:2], NOW))
    meanwhile = await _started(nodes.two, ids[2:4])
    nodes.go_on()
    assert (meanwhile, len((await late).claimed), await _started(nodes.two, ids[4:])) == (2, 0, 0)


async def test_a_delayed_turn_takes_its_permits_when_its_tasks_start(nodes: _Nodes) -> None:
    ids = await add(nodes.one, *(new_task(group="g") for _ in range(4)))
    late = await _held_up(nodes, _plan(ids[:2], NOW))
    nodes.go_on()
    assert (len((await late).claimed), await _started(nodes.two, ids[2:])) == (2, 0)


async def test_a_turn_that_was_held_up_starts_nothing_after_its_deadline(nodes: _Nodes) -> None:
    (id,) = await add(nodes.one, new_task(expires_at=NOW + 30_000, ttl_ms=30_000))
    late = await _held_up(nodes, Turn(now=NOW, starts=Starts(claims=[id])))
    nodes.go_on()
    assert (await late).claimed == []
