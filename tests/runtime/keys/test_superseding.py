"""Superseding: never two attempts of one key at once, nothing is lost, and saved state is passed on."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from taskmill import Context, Domain, Retry, Scheduler
from taskmill.events import TaskSuperseded
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.raw_rows import raw
from tests.runtime.records import active, ended


async def test_a_waiting_task_is_replaced_at_once_and_every_setting_of_the_new_one_applies(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    ran: list[str] = []

    @domain.task(key="k", tags={"a": "old"})
    async def work(version: str) -> None:
        ran.append(version)

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=1)
    listener = scheduler.events(TaskSuperseded)
    old = await work.submit("old")
    await work.options(key=None).submit("between")
    await manual_clock.advance(5)
    new = await work.options(on_duplicate="supersede", priority=100, tags={"a": "new"}, label="l", ttl=50).submit("new")
    assert (new.kind, new.replaced_id) == ("superseded", old.id)
    assert new.id > old.id
    assert (await ended(scheduler, old.id)).ending == "superseded"
    record = await active(scheduler, new.id)
    assert (record.priority, record.tags, record.label, record.retries) == (100, {"a": "new"}, "l", 0)
    event = await anext(listener)
    assert isinstance(event, TaskSuperseded)
    assert (event.task_id, event.new_task_id, event.tags) == (old.id, new.id, {"a": "old"})
    await scheduler.run_until_idle()
    assert ran == ["new", "between"]
    assert (await old.wait()).ending == "superseded"


async def test_a_replacement_keeps_the_queue_place_of_the_task_it_replaces(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    ran: list[str] = []

    @domain.task(key=lambda name, version: name, on_duplicate="supersede")
    async def work(name: str, version: int) -> None:
        ran.append(f"{name}{version}")

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
    for name in "abc":
        await work.submit(name, 1)
        await manual_clock.advance(1)
    await work.submit("b", 2)
    await work.submit("a", 2)
    await scheduler.run_until_idle()
    assert ran == ["a2", "b2", "c1"]


async def test_a_running_task_is_stopped_and_its_hook_done_before_the_replacement_starts(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    started = asyncio.Event()
    may_abort = asyncio.Event()

    @domain.task(key="k", on_duplicate="supersede")
    async def upload(ctx: Context, version: int) -> None:
        happened.append(f"start {version}, replaced {ctx.replaced}")
        if version == 1:
            await ctx.save(upload_id="u1")
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                happened.append("end 1")

    @upload.on_cancel
    async def abort(ctx: Context, version: int) -> None:
        await may_abort.wait()
        await ctx.save(aborted=True)
        happened.append(f"abort {version}")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    listener = scheduler.events(TaskSuperseded)
    async with scheduler.running():
        old = await upload.submit(1)
        await started.wait()
        new = await upload.submit(2)
        await manual_clock.advance(0)
        assert (new.kind, new.replaced_id) == ("superseded", old.id)
        assert (await active(scheduler, new.id)).status == "blocked"
        assert happened[-1] == "end 1"
        may_abort.set()
        assert (await new.wait()).ending == "completed"
    assert happened == [
        "start 1, replaced None",
        "end 1",
        "abort 1",
        "start 2, replaced {'upload_id': 'u1', 'aborted': True}",
    ]
    assert (await ended(scheduler, old.id)).ending == "superseded"
    event = await anext(listener)
    assert isinstance(event, TaskSuperseded)
    assert (event.task_id, event.new_task_id) == (old.id, new.id)


async def test_a_chain_ends_with_the_last_and_hands_down_what_was_saved(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    seen: list[str] = []
    started = asyncio.Event()

    @domain.task(key="k", on_duplicate="supersede")
    async def work(ctx: Context, n: int) -> None:
        seen.append(f"{n} {ctx.replaced}")
        if n == 0:
            await ctx.save(part=7)
            started.set()
            await asyncio.Event().wait()

    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        handles = [await work.submit(0)]
        await started.wait()
        handles += await asyncio.gather(*(work.submit(n) for n in (1, 2, 3)))
        await handles[-1].wait()
    assert seen == ["0 None", "3 {'part': 7}"]
    assert [(await handle.wait()).ending for handle in handles] == [*["superseded"] * 3, "completed"]


async def test_a_handler_that_ignores_cancellation_is_ended_and_a_thread_is_waited_for(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    domain = Domain("d")
    alive: list[str] = []
    most: list[int] = []
    release, in_thread = threading.Event(), threading.Event()

    @domain.task(key="loop", on_duplicate="supersede")
    async def deaf_on_loop(n: int) -> None:
        alive.append("loop")
        most.append(alive.count("loop"))
        try:
            while n == 1:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    continue
        finally:
            alive.remove("loop")

    @domain.task(key="thread", on_duplicate="supersede")
    def deaf_in_thread(n: int) -> None:
        alive.append("thread")
        most.append(alive.count("thread"))
        in_thread.set()
        if n == 1:
            release.wait(30)
        alive.remove("thread")

    scheduler = await taskmill_scheduler(domains=[domain], cancel_timeout=5)
    async with scheduler.running():
        await deaf_on_loop.submit(1)
        await deaf_in_thread.submit(1)
        await asyncio.to_thread(in_thread.wait)
        await manual_clock.advance(0)
        on_loop, threaded = await deaf_on_loop.submit(2), await deaf_in_thread.submit(2)
        await manual_clock.advance(4.9)
        assert (await active(scheduler, on_loop.id)).status == "blocked"
        await manual_clock.advance(0.2)
        assert (await on_loop.wait()).ending == "completed"
        await manual_clock.advance(60)
        assert (await active(scheduler, threaded.id)).status == "blocked"
        assert "its slot stays taken until it ends" in caplog.text
        release.set()
        assert (await threaded.wait()).ending == "completed"
    assert set(most) == {1}


async def test_a_replaced_attempt_that_loses_its_process_is_still_superseded(tmp_path: Path) -> None:
    domain = Domain("d")
    happened: list[str] = []

    @domain.task(key="k", on_duplicate="supersede")
    async def work(ctx: Context, n: int) -> None:
        happened.append(f"run {n}, replaced {ctx.replaced}")

    @work.on_cancel
    async def hook(n: int) -> None:
        happened.append(f"hook {n}")

    async with Scheduler(tmp_path / "t.db", domains=[domain]) as scheduler:
        old = await work.submit(1)
        with raw(tmp_path / "t.db") as connection:
            connection.execute(
                "UPDATE taskmill_task SET status = 'running', attempt = 1, started_at = 1, saved = '{\"a\": 1}'"
            )
        new = await work.submit(2)
        assert (await active(scheduler, new.id)).status == "blocked"
    async with Scheduler(tmp_path / "t.db", domains=[domain]) as scheduler:
        await scheduler.run_until_idle()
        assert (await ended(scheduler, old.id)).ending == "superseded"
        assert (await ended(scheduler, new.id)).ending == "completed"
    assert happened == ["hook 1", "run 2, replaced {'a': 1}"]


@pytest.mark.parametrize("steps", range(1, 9))
async def test_an_attempt_hears_of_its_replacement_even_between_its_claim_and_its_start(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock, steps: int
) -> None:
    domain = Domain("d")

    @domain.task(key="k", on_duplicate="supersede")
    async def work(n: int) -> int:
        if n == 1:
            await asyncio.Event().wait()
        return n

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], shutdown_grace=0)
    async with scheduler.running():
        await manual_clock.advance(0)
        first = asyncio.ensure_future(work.submit(1))
        for _ in range(steps):
            await asyncio.sleep(0)
        second = await work.submit(2)
        await first
        assert await second.result() == 2


async def test_a_replacement_that_is_revived_still_reads_what_the_replaced_task_saved(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d")
    seen: list[tuple[str, int | None, int | None]] = []
    saved = asyncio.Event()

    @domain.task(key="k", retry=Retry.none())
    async def work(ctx: Context, version: str) -> None:
        replaced = None if ctx.replaced is None else ctx.replaced["step"]
        seen.append((version, replaced, ctx.saved.get("step")))
        await ctx.save(step=ctx.attempt)
        if version == "old":
            saved.set()
            await asyncio.Event().wait()
        if ctx.attempt == 1:
            raise ValueError("the first attempt fails")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        await work.submit("old")
        await saved.wait()
        new = await work.options(on_duplicate="supersede").submit("new")
        assert (await new.wait()).ending == "dead_letter"
        await scheduler.retry_dead(new.id)
        assert (await new.wait()).ending == "completed"
    assert seen == [("old", None, None), ("new", 1, None), ("new", 1, 1)]
