"""Running once more with the newest payload."""

from __future__ import annotations

import asyncio

from taskmill import Domain, Retry
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


async def test_requeue_runs_a_running_task_once_more_with_the_newest_payload(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    seen: list[str] = []
    started, go_on = asyncio.Event(), asyncio.Event()

    @domain.task(key="k", on_duplicate="requeue")
    async def sync(version: str) -> str:
        seen.append(version)
        started.set()
        await go_on.wait()
        return version

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        first = await sync.submit("one")
        await started.wait()
        again = [await sync.submit(version) for version in ("two", "three")]
        assert [(handle.kind, handle.id) for handle in again] == [("requeued", first.id)] * 2
        go_on.set()
        assert await again[-1].result() == "three"
    assert seen == ["one", "three"]
    assert len(await scheduler.history()) == 1


async def test_requeue_is_like_skip_while_the_task_waits(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task(key="k", on_duplicate="requeue")
    async def sync(version: str) -> str:
        return version

    scheduler = await taskmill_scheduler(domains=[domain])
    first = await sync.submit("one")
    assert (await sync.submit("two")).kind == "duplicate"
    assert (await sync.options(priority=1).submit("three")).kind == "upgraded"
    await scheduler.run_until_idle()
    assert await first.result() == "one"


async def test_a_request_to_run_again_outlives_the_deadline_of_the_attempt_it_waits_for(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    ran: list[int] = []
    started, go = asyncio.Event(), asyncio.Event()

    @domain.task(key="k", retry=Retry.constant(3, 20), on_duplicate="requeue")
    async def work(n: int) -> None:
        ran.append(n)
        started.set()
        await go.wait()
        if n == 1:
            raise ValueError("later")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        await work.options(ttl=15).submit(1)
        await started.wait()
        again = await work.options(ttl=None).submit(2)
        assert again.kind == "requeued"
        go.set()
        await manual_clock.advance(16)
        record = await again.wait()
    assert (record.ending, record.payload, ran) == ("completed", {"n": 2}, [1, 2])
