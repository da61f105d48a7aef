"""``finalize`` runs once the children have ended, through retries, crashes and restarts, in any executor."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from taskmill import Context, Domain, Retry, Task
from taskmill.events import TaskWaiting
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.processes import handlers as process_handlers
from tests.runtime.records import ended


async def test_finalize_may_spawn_and_wait_again(taskmill_scheduler: SchedulerFactory, any_store: str) -> None:
    domain = Domain("d")

    @domain.task
    async def part(n: int) -> int:
        return n

    @domain.task
    async def whole(ctx: Context) -> None:
        await ctx.spawn(part.prepare(0))

    @whole.finalize
    async def finish(ctx: Context) -> list[int] | None:
        results = [child.result for child in ctx.children]
        if len(results) < 4:
            await ctx.spawn(part.prepare(len(results)))
            return None
        return results

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    handle = await whole.submit()
    await scheduler.run_until_idle()
    assert (await handle.wait()).result == [0, 1, 2, 3]


async def test_a_failed_finalize_is_retried_and_the_handler_is_not(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")
    happened: list[str] = []

    @domain.task
    async def part() -> None:
        happened.append("part")

    @domain.task(retry=Retry.constant(2, 0))
    async def whole(ctx: Context) -> None:
        happened.append("handler")
        await ctx.spawn(part.prepare())

    @whole.finalize
    async def finish(ctx: Context) -> str:
        happened.append("finalize")
        if happened.count("finalize") < 3:
            raise RuntimeError("not yet")
        return "at last"

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await whole.submit()
    await scheduler.run_until_idle()
    assert (await handle.wait()).result == "at last"
    assert happened == ["handler", "part", "finalize", "finalize", "finalize"]


@pytest.mark.parametrize("when", ["children alive", "finalize waits", "finalize runs"])
async def test_a_crash_around_finalize_runs_finalize_and_never_the_handler_again(
    taskmill_scheduler: SchedulerFactory, tmp_path: Path, manual_clock: ManualClock, when: str
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    hold = {"part": asyncio.Event(), "finalize": asyncio.Event()}
    reached = {"part": asyncio.Event(), "finalize": asyncio.Event()}

    @domain.task
    async def part() -> None:
        reached["part"].set()
        await hold["part"].wait()
        happened.append("part")

    @domain.task
    async def whole(ctx: Context) -> None:
        happened.append("handler")
        await ctx.spawn(part.prepare())

    @whole.finalize
    async def finish(ctx: Context) -> None:
        reached["finalize"].set()
        await hold["finalize"].wait()
        happened.append(f"finalize {[child.ending for child in ctx.children]}")

    file = str(tmp_path / "tasks.db")
    scheduler = await taskmill_scheduler(store=file, domains=[domain], shutdown_grace=0, cancel_timeout=1)
    listener = scheduler.events(TaskWaiting)
    async with scheduler.running():
        handle = await whole.submit()
        await reached["part"].wait()
        await anext(listener)
        if when != "children alive":
            hold["part"].set()
            await reached["finalize"].wait()
            if when == "finalize waits":
                hold["finalize"].set()
    await scheduler.close()
    hold["part"].set()
    hold["finalize"].set()
    again = await taskmill_scheduler(store=file, domains=[domain])
    await again.run_until_idle()
    assert (await ended(again, handle.id)).ending == "completed"
    assert happened == ["handler", "part", "finalize [<Ending.COMPLETED: 'completed'>]"]


async def test_finalize_runs_inside_the_limit(taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock) -> None:
    domain = Domain("d")
    at_work = most = 0

    @domain.task
    async def part() -> None:
        return None

    @domain.task
    async def whole(ctx: Context) -> None:
        await ctx.spawn(part.prepare())

    @whole.finalize
    async def finish(ctx: Context) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await manual_clock.sleep(1)
        at_work -= 1

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=2)
    await scheduler.submit_many(whole.prepare() for _ in range(10))
    async with scheduler.running():
        await manual_clock.advance(20)
        left = await scheduler.count()
    assert (most, left) == (2, 0)


@pytest.mark.parametrize("how", ["def", "process", "async process"])
async def test_threads_and_processes_spawn_and_finalize_too(taskmill_scheduler: SchedulerFactory, how: str) -> None:
    tasks: dict[str, Task[[int], Any]] = {
        "def": process_handlers.whole_in_thread,
        "process": process_handlers.whole_in_process,
        "async process": process_handlers.whole_in_async_process,
    }
    scheduler = await taskmill_scheduler(domains=[process_handlers.work])
    handle = await scheduler.submit(tasks[how].prepare(3))
    await scheduler.run_until_idle()
    assert (await handle.wait()).result == {"parts": [0, 2, 4], "spawned": 3}


async def test_a_parent_that_was_revived_reads_of_the_children_of_its_new_run_only(
    taskmill_scheduler: SchedulerFactory,
) -> None:
    domain = Domain("d", retry=Retry.none())
    seen: list[int] = []

    @domain.task
    async def part() -> None: ...

    @domain.task
    async def whole(ctx: Context) -> None:
        await ctx.spawn(part.prepare())

    @whole.finalize
    async def finish(ctx: Context) -> None:
        seen.append(len(ctx.children))
        if len(seen) == 1:
            raise ValueError("once")

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await whole.submit()
    await scheduler.run_until_idle()
    assert (await ended(scheduler, handle.id)).ending == "dead_letter"
    await scheduler.retry_dead(handle.id)
    await scheduler.run_until_idle()
    assert (await ended(scheduler, handle.id)).ending == "completed"
    assert seen == [1, 1]


async def test_a_finalize_without_a_handler_here_does_not_expire(
    taskmill_scheduler: SchedulerFactory, tmp_path: Path, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    reached, hold = asyncio.Event(), asyncio.Event()

    @domain.task(ttl=None)
    async def part() -> None: ...

    @domain.task(ttl=10)
    async def whole(ctx: Context) -> None:
        await ctx.spawn(part.prepare())

    @whole.finalize
    async def finish(ctx: Context) -> str:
        reached.set()
        await hold.wait()
        return "finished"

    file = str(tmp_path / "tasks.db")
    scheduler = await taskmill_scheduler(store=file, domains=[domain], shutdown_grace=0, cancel_timeout=1)
    async with scheduler.running():
        handle = await whole.submit()
        await reached.wait()
    await scheduler.close()
    stranger = await taskmill_scheduler(store=file, domains=[])
    await stranger.run_until_idle()
    await manual_clock.advance(20)
    await stranger.run_until_idle()
    await stranger.close()
    hold.set()
    again = await taskmill_scheduler(store=file, domains=[domain])
    await again.run_until_idle()
    assert (await ended(again, handle.id)).result == "finished"
