"""With several open schedulers: which of them receives a submission, and that the result is the same in each."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from taskmill import ConfigError, Domain, Scheduler, UnknownTaskType
from taskmill.testing import ManualClock


def _two_domains() -> tuple[Domain, Any]:
    domain = Domain("several")

    @domain.task
    async def work(n: int) -> int:
        return n

    return domain, work


async def test_a_task_belongs_to_the_only_open_scheduler() -> None:
    domain, work = _two_domains()
    with pytest.raises(ConfigError, match="several"):
        await work.submit(1)
    async with Scheduler(domains=[domain]) as scheduler:

        async def elsewhere() -> int:
            handle = await work.submit(1)
            return int(handle.id)

        assert await scheduler.get(await asyncio.create_task(elsewhere()))
    with pytest.raises(ConfigError, match="several"):
        await work.submit(1)


async def test_of_several_open_schedulers_the_innermost_context_counts() -> None:
    domain, work = _two_domains()
    async with Scheduler(domains=[domain]) as outer:
        async with Scheduler(domains=[domain]) as inner:
            await work.submit(1)
            assert (await outer.count(), await inner.count()) == (0, 1)
            await outer.submit(work.prepare(2))
            assert (await outer.count(), await inner.count()) == (1, 1)
        await work.submit(3)
        assert await outer.count() == 2


async def test_outside_their_contexts_several_schedulers_must_be_told_apart() -> None:
    domain, work = _two_domains()
    first, second = Scheduler(domains=[domain]), Scheduler(domains=[domain])
    await first.open()
    await second.open()
    try:
        with pytest.raises(ConfigError, match=r"2 open schedulers.*prepare"):
            await work.submit(1)
        handle = await second.submit(work.prepare(1))
        assert (await first.count(), await second.count()) == (0, 1)
        assert (await second.get(handle.id)).payload == {"n": 1}
    finally:
        await first.close()
        await second.close()


async def test_a_handler_submits_to_the_scheduler_it_runs_in() -> None:
    domain = Domain("inside")

    @domain.task
    async def leaf() -> None: ...

    @domain.task
    async def parent() -> int:
        return (await leaf.submit()).id

    async with Scheduler(domains=[domain]) as first, Scheduler(domains=[domain]) as second:
        for scheduler, other in ((first, second), (second, first)):
            before = len(await other.history())
            handle = await scheduler.submit(parent.prepare())
            await scheduler.run_until_idle(timeout=10)
            spawned = await scheduler.get(await handle.result())
            assert spawned.type == "inside::leaf"
            assert len(await other.history()) == before


async def test_a_prepared_submission_fits_any_scheduler_that_knows_the_type() -> None:
    domain, work = _two_domains()
    prepared = work.options(priority=3).prepare(5)
    async with Scheduler(domains=[domain]) as one, Scheduler(domains=[domain]) as two, Scheduler() as none:
        for scheduler in (one, two):
            handle = await scheduler.submit(prepared)
            assert (await scheduler.get(handle.id)).priority == 3
            await scheduler.run_until_idle(timeout=10)
            assert await handle.result() == 5
        with pytest.raises(UnknownTaskType, match="several::work"):
            await none.submit(prepared)


async def test_an_instant_is_the_same_instant_in_any_zone() -> None:
    domain, work = _two_domains()
    clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
    at = datetime(2030, 1, 1, 5, 0, 0, 1000, tzinfo=timezone(timedelta(hours=2)))
    async with Scheduler(domains=[domain], clock=clock):
        record = await (await work.options(run_at=at).submit(1)).record()
        assert record.run_at == at
        assert record.status == "scheduled"
