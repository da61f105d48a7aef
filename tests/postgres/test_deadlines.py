"""Deadlines on PostgreSQL: a claim may have to wait, and a task that expires meanwhile does not start."""

from __future__ import annotations

import asyncio

import psycopg

from taskmill import Domain, HistoryRecord, Scheduler


async def test_a_task_that_expires_while_its_claim_waits_is_not_started(postgres_store: str) -> None:
    domain = Domain("d")
    may_end = asyncio.Event()
    started: list[str] = []

    @domain.task
    async def block() -> None:
        started.append("block")
        await may_end.wait()

    @domain.task
    async def work() -> None:
        started.append("work")

    async with (
        Scheduler(postgres_store, domains=[domain], max_concurrency=1) as scheduler,
        scheduler.running(),
        await psycopg.AsyncConnection.connect(postgres_store) as other,
    ):
        await block.submit()
        while not started:
            await asyncio.sleep(0.01)
        handle = await work.options(ttl=1).submit()
        await other.execute("LOCK TABLE taskmill_writing IN EXCLUSIVE MODE")
        may_end.set()
        await asyncio.sleep(1.2)
        await other.rollback()
        await handle.wait()
        record = await handle.record()
    assert isinstance(record, HistoryRecord)
    assert record.ending == "expired"
    assert started == ["block"]
