"""Caps, shares and rates hold for all nodes together."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import mean, median
from typing import Any

import pytest

from taskmill import Domain, Group, InvalidState, RateLimit, Scheduler, Submission
from taskmill.core.clock import SystemClock
from taskmill.model.cluster import NOWHERE, Admission, Elsewhere, Start
from taskmill.model.controls import Scope, ScopeKind
from taskmill.model.turn import Look, Starts, Turn
from taskmill.policy.rates import full_bucket
from taskmill.store.postgres.store import PostgresStore
from tests.metrics.scraping import Scrape
from tests.store.contract.samples import NOW, TYPE, add, new_task


class Watch:
    """What runs on which node; tasks run until the test releases them."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.by_node: Counter[int] = Counter()
        self.started_at: list[float] = []
        self.let_go = asyncio.Event()

    def domain(self, node: int) -> Domain:
        domain = Domain("d")

        @domain.task
        async def work(group: str) -> None:
            self.running[group] += 1
            self.most[group] = max(self.most[group], self.running[group])
            self.by_node[node] += 1
            self.started_at.append(time.monotonic())
            try:
                await self.let_go.wait()
                await asyncio.sleep(0)
            finally:
                self.running[group] -= 1

        return domain


def work(group: str) -> Submission:
    return Submission("d::work", {"group": group}, group=group)


@asynccontextmanager
async def nodes(address: str, watch: Watch, count: int, **settings: Any) -> AsyncIterator[list[Scheduler]]:
    async with AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(Scheduler(address, domains=[watch.domain(node)], **settings))
            for node in range(count)
        ]
        for scheduler in made:
            await stack.enter_async_context(scheduler.running())
        stack.callback(watch.let_go.set)
        yield made


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.01)


async def test_a_cap_holds_for_all_nodes(postgres_store: str) -> None:
    watch = Watch()
    watch.let_go.set()
    async with nodes(postgres_store, watch, 3, max_concurrency=8, groups={"g": Group(cap=4)}) as (first, *_):
        handles = await first.submit_many([work("g") for _ in range(120)])
        for handle in handles:
            await handle.wait(timeout=60)
    assert watch.most["g"] <= 4
    assert sum(watch.by_node.values()) == 120


async def test_a_cap_is_used_to_the_full(postgres_store: str) -> None:
    watch = Watch()
    async with nodes(postgres_store, watch, 2, max_concurrency=3, groups={"g": Group(cap=5)}) as (first, _):
        await first.submit_many([work("g") for _ in range(20)])
        await until(lambda: watch.running["g"] == 5)
        await asyncio.sleep(0.3)
        assert watch.running["g"] == 5
        assert sorted(watch.by_node.values()) == [2, 3]


async def test_a_remedy_of_more_slots_is_applied_to_one_node_and_starts_the_task(postgres_store: str) -> None:
    watch = Watch()
    async with nodes(postgres_store, watch, 2, max_concurrency=3) as (first, second):
        *_, last = await first.submit_many([work("g") for _ in range(7)])
        await until(lambda: watch.running["g"] == 6)
        (remedy,) = (await first.explain(last.id)).remedies
        assert (remedy.text, remedy.changes) == ("1 more slot", {"max_concurrency": 7})
        with pytest.raises(InvalidState, match="the other nodes have as many slots already"):
            await first.apply({"max_concurrency": 3})
        await first.apply(remedy.changes)
        await until(lambda: watch.running["g"] == 7)
        assert sorted(node.slots for node in (await second.snapshot()).nodes) == [3, 4]


async def test_the_slots_of_all_nodes_are_shared_by_weight(postgres_store: str) -> None:
    watch = Watch()
    groups = {"a": Group(weight=3), "b": Group(weight=1)}
    async with nodes(postgres_store, watch, 2, max_concurrency=8, groups=groups) as (first, second):
        await first.submit_many([work("a") for _ in range(200)])
        await second.submit_many([work("b") for _ in range(200)])
        await until(lambda: watch.running.total() == 16)
        # A node may lend slots until it learns that tasks of another have ended; they return as tasks end.
        slots_of_a: list[int] = []
        for _ in range(12):
            watch.let_go.set()
            await asyncio.sleep(0)
            watch.let_go.clear()
            await until(lambda: watch.running.total() == 16)
            slots_of_a.append(watch.running["a"])
        assert 11 <= mean(slots_of_a) <= 13, slots_of_a
        assert median(slots_of_a) == 12, slots_of_a


async def test_a_rate_holds_for_all_nodes(postgres_store: str) -> None:
    watch = Watch()
    watch.let_go.set()
    began = time.monotonic()
    rate = RateLimit.per_second(20, burst=5)
    async with nodes(postgres_store, watch, 3, max_concurrency=8, groups={"g": Group(rate=rate)}) as (first, *_):
        handles = await first.submit_many([work("g") for _ in range(25)])
        for handle in handles:
            await handle.wait(timeout=60)
    assert len(watch.started_at) == 25
    for start in watch.started_at:
        for end in watch.started_at:
            if end >= start:
                count = sum(start <= at <= end for at in watch.started_at)
                # A start is recorded a moment after its permit was taken.
                assert count <= 5 + 20 * (end - start + 0.25) + 1
    assert watch.started_at[-1] - began >= 20 / 20 - 0.1


async def test_a_plan_that_knows_nothing_of_the_others_claims_what_the_true_numbers_allow(postgres_store: str) -> None:
    stores = [PostgresStore(postgres_store, "full", SystemClock()) for _ in range(2)]
    for store in stores:
        await store.open()
    one, two = stores
    rights = [await store.acquire_dispatch() for store in stores]
    ids = await add(one, *(new_task(group="g") for _ in range(6)))

    def plan(wanted: list[int], planned: Elsewhere) -> Turn:
        starts = [Start(id, "g", TYPE) for id in wanted]
        admission = Admission(starts, planned, {}, {}, {"g": 4}, {}, None, 8)
        return Turn(now=NOW, starts=Starts(claims=wanted, admission=admission), look=Look(slots=8))

    first = await one.turn(plan(ids[:3], NOWHERE))
    assert ([task.id for task in first.claimed], first.refused, first.elsewhere) == (ids[:3], False, NOWHERE)
    second = await two.turn(plan(ids[3:], NOWHERE))
    assert ([task.id for task in second.claimed], second.refused) == (ids[3:4], True)
    assert second.elsewhere == Elsewhere({"g": 3}, {"d": 3}, 8)
    for right, store in zip(rights, stores, strict=True):
        right.release()
        await store.close()


async def test_time_fills_a_bucket_once_though_a_turn_that_was_planned_earlier_is_committed_later(
    postgres_store: str,
) -> None:
    store = PostgresStore(postgres_store, "full", SystemClock())
    await store.open()
    right = await store.acquire_dispatch()
    ids = await add(store, *(new_task(group="g") for _ in range(6)))
    limit, scope, later = RateLimit(1, 1, burst=2), Scope(ScopeKind.GROUP, "g"), NOW + 10_000

    def plan(wanted: list[int], now: int) -> Turn:
        admission = Admission([Start(id, "g", TYPE) for id in wanted], NOWHERE, {}, {}, {}, {}, None, 8)
        buckets = [(scope, limit, full_bucket(limit, now))]
        return Turn(now=now, starts=Starts(claims=wanted, admission=admission, rates=buckets), look=Look(slots=8))

    turns = [plan(ids[:1], later), plan(ids[1:2], NOW), plan(ids[2:4], later), plan(ids[2:4], later + 1000)]
    claimed = [len((await store.turn(turn)).claimed) for turn in turns]
    right.release()
    await store.close()
    assert claimed == [1, 1, 0, 1]


async def test_a_domain_cap_that_another_node_fills_is_a_counted_hold(postgres_store: str) -> None:
    """``explain`` and the metric agree, on whichever node the tasks run that fill the cap."""
    watch = Watch()
    async with AsyncExitStack() as stack:
        fills, waits = [
            await stack.enter_async_context(Scheduler(postgres_store, domains=[watch.domain(node)]))
            for node in range(2)
        ]
        stack.callback(watch.let_go.set)
        await fills.domain("d").set_max_concurrency(1)
        await stack.enter_async_context(fills.running())
        await fills.submit(work("g"))
        await until(lambda: watch.running["g"] == 1)
        scrape = Scrape(waits)
        handle = await waits.submit(work("h"))
        await stack.enter_async_context(waits.running())
        await until(lambda: bool(scrape.denials()))
        explained = await handle.explain()
        assert [hold.reason for hold in explained.holds] == ["domain_cap"]
        assert scrape.denials() == {"domain_cap": 1}
