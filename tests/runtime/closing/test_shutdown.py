"""Shutdown is bounded; shutdown and recovery use no retry; poison is quarantined."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from taskmill import AlreadyRunning, Context, Domain, InvalidState, Scheduler
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.raw_rows import raw


async def test_running_tasks_may_finish_within_the_grace(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    started = asyncio.Event()

    @domain.task
    async def work() -> str:
        started.set()
        await manual_clock.sleep(3)
        return "done"

    scheduler = await taskmill_scheduler(domains=[domain], shutdown_grace=5)
    first, second = await work.submit(), await work.options(priority=200).submit()
    await scheduler.set_max_concurrency(1)
    running = asyncio.create_task(scheduler.run())
    await started.wait()
    stopping = asyncio.create_task(scheduler.stop())
    await manual_clock.advance(3)
    await stopping
    await running
    assert await first.result() == "done"
    assert (await second.record()).status == "pending", "nothing new is claimed during shutdown"  # type: ignore[union-attr]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_task_that_does_not_end_returns_to_the_queue_without_a_retry_and_runs_again(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, in_thread: bool
) -> None:
    domain = Domain("d")
    started = threading.Event()
    attempts: list[int] = []

    def step(ctx: Context) -> bool:
        attempts.append(ctx.attempt)
        started.set()
        return len(attempts) > 1

    @domain.task(name="work")
    async def on_loop(ctx: Context) -> None:
        if not step(ctx):
            await asyncio.Event().wait()

    @domain.task(name="threaded")
    def in_a_thread(ctx: Context) -> None:
        if not step(ctx):
            while not ctx.cancelled:
                threading.Event().wait(0.001)
            ctx.check_cancelled()

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], shutdown_grace=2)
    handle = await (in_a_thread if in_thread else on_loop).submit()
    running = asyncio.create_task(scheduler.run())
    await asyncio.to_thread(started.wait)
    stopping = asyncio.create_task(scheduler.stop())
    await manual_clock.advance(10)
    await stopping
    await running
    record = await handle.record()
    assert (record.status, record.retries, record.attempt) == ("pending", 0, 1)  # type: ignore[union-attr]
    await scheduler.run_until_idle()
    assert attempts == [1, 2]
    assert (await handle.wait()).ending == "completed"


@pytest.mark.one_engine("a file has one dispatcher; for nodes that linger see tests/postgres/test_lingering.py")
async def test_a_thread_that_cannot_be_stopped_delays_no_close_but_keeps_the_right_to_dispatch(
    tmp_path: Path, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    started, release = threading.Event(), threading.Event()
    overlaps: list[int] = []
    alive: list[int] = []

    @domain.task
    def deaf(ctx: Context) -> None:
        alive.append(ctx.attempt)
        overlaps.append(len(alive))
        started.set()
        release.wait(30)
        alive.remove(ctx.attempt)

    settings = {"domains": [domain], "shutdown_grace": 1, "clock": manual_clock}
    async with Scheduler(tmp_path / "t.db", **settings) as scheduler:  # type: ignore[arg-type]
        handle = await deaf.submit()
        running = asyncio.create_task(scheduler.run())
        await asyncio.to_thread(started.wait)
        stopping = asyncio.create_task(scheduler.stop())
        await manual_clock.advance(2)
        await stopping
        await running
        assert (await handle.record()).status == "pending"  # type: ignore[union-attr]
        async with Scheduler(tmp_path / "t.db", **settings) as other:  # type: ignore[arg-type]
            with pytest.raises(AlreadyRunning):
                await other.run_until_idle()
            release.set()
            while alive:
                await manual_clock.advance(0)
            await manual_clock.advance(0)
            await other.run_until_idle()
            assert (await other.get(handle.id)).ending == "completed"  # type: ignore[union-attr]
    assert overlaps == [1, 1]


async def test_a_second_stop_can_only_shorten_the_time_that_handlers_have(tmp_path: Path) -> None:
    domain = Domain("d")
    started = asyncio.Event()

    @domain.task
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    async with Scheduler(tmp_path / "t.db", domains=[domain], shutdown_grace=0) as scheduler:
        await endless.submit()
        running = asyncio.create_task(scheduler.run())
        await started.wait()
        # Both stops are requested before the loop has noticed the first.
        stops = [asyncio.create_task(scheduler.stop(grace)) for grace in (0, 60)]
        await asyncio.wait_for(asyncio.gather(running, *stops), 20)


@pytest.mark.one_engine("a file has one dispatcher, a database has many")
async def test_only_one_scheduler_dispatches_a_file_and_a_standby_takes_over(tmp_path: Path) -> None:
    domain = Domain("d")
    ran: list[int] = []

    @domain.task
    async def work(n: int) -> None:
        ran.append(n)

    async with (
        Scheduler(tmp_path / "t.db", domains=[domain]) as one,
        Scheduler(tmp_path / "t.db", domains=[domain]) as two,
    ):
        async with one.running():
            with pytest.raises(AlreadyRunning, match="process"):
                await two.run()
            with pytest.raises(InvalidState):
                await one.run()
            standby = asyncio.create_task(two.run(standby=True))
            await (await one.submit(work.prepare(1))).wait(timeout=10)
        handle = await two.submit(work.prepare(2))
        await handle.wait(timeout=10)
        await two.stop()
        await standby
    assert ran == [1, 2]


async def test_tasks_of_a_dead_dispatcher_run_again_without_cost_and_poison_is_quarantined(tmp_path: Path) -> None:
    domain = Domain("d")
    attempts: list[int] = []

    @domain.task
    async def work(ctx: Context) -> None:
        attempts.append(ctx.attempt)

    async def crash() -> None:
        with raw(tmp_path / "t.db") as connection:
            connection.execute(
                "UPDATE taskmill_task SET status = 'running', attempt = attempt + 1, started_at = created_at"
            )

    async with Scheduler(tmp_path / "t.db", domains=[domain]) as scheduler:
        handle = await work.submit()
        await scheduler.pause()
    for crashes in (1, 2):
        await crash()
        async with Scheduler(tmp_path / "t.db", domains=[domain]) as scheduler:
            # By now the dispatcher has noticed.
            await scheduler.run_until_idle()
            record = await scheduler.get(handle.id)
            assert (record.status, record.retries, record.attempt) == ("paused", 0, crashes)  # type: ignore[union-attr]
    await crash()
    async with Scheduler(tmp_path / "t.db", domains=[domain]) as scheduler:
        await scheduler.run_until_idle()
        record = await scheduler.get(handle.id)
        assert (record.ending, record.error) == ("dead_letter", "crashed 3 times")  # type: ignore[union-attr]
        await scheduler.resume()
        again = await scheduler.retry_dead(handle.id)
        await scheduler.run_until_idle()
        assert (await again.wait()).ending == "completed"
    assert attempts == [4]


async def test_verbs_of_a_closed_scheduler_say_what_to_do() -> None:
    scheduler = Scheduler()
    with pytest.raises(InvalidState, match="async with"):
        await scheduler.snapshot()
    async with scheduler:
        with pytest.raises(InvalidState):
            await scheduler.open()
    with pytest.raises(InvalidState):
        await scheduler.run()
