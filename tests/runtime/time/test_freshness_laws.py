"""Laws of deadlines: neither retries nor children extend one; a replacement has a new one."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime, timedelta

import pytest

from taskmill import Context, Domain, HistoryRecord, Retry, TtlFrom
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


@pytest.mark.parametrize("seed", range(12))
async def test_no_attempt_starts_after_the_deadline_however_often_it_is_retried(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock, seed: int
) -> None:
    chance = random.Random(seed)
    domain = Domain("d")
    attempts: dict[int, list[datetime]] = {}
    promised: dict[int, tuple[timedelta, TtlFrom]] = {}

    @domain.task(retry=Retry.constant(20, delay=3))
    async def work(ctx: Context, n: int) -> None:
        attempts.setdefault(ctx.task.id, []).append(manual_clock.now())
        await manual_clock.sleep(chance.choice([0, 1, 5]))
        raise ValueError("again")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=chance.randint(1, 6))
    async with scheduler.running():
        for n in range(12):
            ttl = timedelta(seconds=chance.choice([1, 4, 9, 30]))
            ttl_from = chance.choice(list(TtlFrom))
            handle = await work.options(ttl=ttl, ttl_from=ttl_from, priority=chance.randint(0, 255)).submit(n)
            promised[handle.id] = (ttl, ttl_from)
            await manual_clock.advance(chance.choice([0, 1, 3]))
        await manual_clock.advance(600)
    for id, (ttl, ttl_from) in promised.items():
        record = await scheduler.get(id)
        assert isinstance(record, HistoryRecord)
        assert record.ending in ("expired", "dead_letter")
        starts = attempts.get(id, [])
        begins = record.created_at if ttl_from == "submission" else min(starts, default=record.created_at)
        assert all(start < begins + ttl for start in starts)
        if starts:
            assert record.expires_at == begins + ttl


@pytest.mark.parametrize("seed", range(12))
async def test_a_child_never_outlives_the_deadline_it_inherits(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, seed: int
) -> None:
    chance = random.Random(seed)
    domain = Domain("d")
    late: list[int] = []
    own_ttl: set[int] = set()

    @domain.task(fail_fast=False)
    async def node(ctx: Context, depth: int) -> None:
        task = ctx.task
        if task.expires_at is not None and manual_clock.now() >= task.expires_at:
            late.append(task.id)
        await manual_clock.sleep(chance.choice([0, 1, 4]))
        for _ in range(chance.randint(0, 3) if depth else 0):
            if chance.random() < 0.2:
                child = await ctx.spawn(node.options(ttl=chance.choice([1, 50])).prepare(depth - 1))
                own_ttl.add(child.id)
            else:
                await ctx.spawn(node.prepare(depth - 1))

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=2, default_ttl=500)
    async with scheduler.running():
        for _ in range(5):
            await node.options(ttl=chance.choice([2, 6, 20])).submit(3)
        await manual_clock.advance(1000)
    assert await scheduler.tasks() == []
    assert late == []
    records = {record.id: record for record in await scheduler.history(limit=10_000)}
    children = [record for record in records.values() if record.parent_id is not None]
    assert children
    for child in children:
        parent = records[child.parent_id or 0]
        if child.id not in own_ttl:
            assert child.expires_at == parent.expires_at
        if child.ending == "completed":
            assert child.started_at is not None
            assert child.expires_at is not None
            # Its last start may be that of its finalize; a leaf has none.
            assert child.started_at < child.expires_at or await scheduler.history(parent=child.id)


async def test_a_replacement_has_a_fresh_retry_counter(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    failed = asyncio.Event()

    @domain.task(key="k", retry=Retry.constant(2, delay=10), on_duplicate="supersede")
    async def work(version: int) -> None:
        failed.set()
        raise ValueError("no")

    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        old = await work.submit(1)
        await failed.wait()
        await manual_clock.advance(10)
        new = await work.submit(2)
        assert (await scheduler.get(old.id)).retries == 2
        await manual_clock.advance(0)
        fresh = await scheduler.get(new.id)
        assert (fresh.retries, fresh.attempt) == (1, 1)
        await manual_clock.advance(20)
        record = await new.wait()
    assert (record.ending, record.attempt) == ("dead_letter", 3)
