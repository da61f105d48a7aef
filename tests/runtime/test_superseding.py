"""Superseding and running once more: never two attempts of one key at once, nothing lost, saved state handed down."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from taskmill import AlreadyRunning, Context, Domain, Retry, Scheduler
from taskmill.clock import SystemClock
from taskmill.events import TaskSuperseded
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
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


async def test_a_new_task_of_a_key_waits_for_a_cancelled_one_that_has_not_ended(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    started, may_end = asyncio.Event(), asyncio.Event()

    @domain.task(key="k")
    async def work(n: int) -> None:
        happened.append(f"start {n}")
        started.set()
        if n == 1:
            try:
                await asyncio.Event().wait()
            finally:
                await may_end.wait()
                happened.append("end 1")

    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        first = await work.submit(1)
        await started.wait()
        await first.cancel()
        second = await work.submit(2)
        assert second.kind == "inserted"
        await manual_clock.advance(1)
        assert happened == ["start 1"]
        may_end.set()
        await second.wait()
    assert happened == ["start 1", "end 1", "start 2"]
    assert (await ended(scheduler, first.id)).ending == "cancelled"


async def test_a_replaced_attempt_that_loses_its_process_still_makes_way(tmp_path: Path) -> None:
    import sqlite3

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
        raw = sqlite3.connect(tmp_path / "t.db")
        raw.execute("UPDATE taskmill_task SET status = 'running', attempt = 1, saved = '{\"a\": 1}'")
        raw.commit()
        raw.close()
        new = await work.submit(2)
        assert (await active(scheduler, new.id)).status == "blocked"
    async with Scheduler(tmp_path / "t.db", domains=[domain]) as scheduler:
        await scheduler.run_until_idle()
        assert (await ended(scheduler, old.id)).ending == "superseded"
        assert (await ended(scheduler, new.id)).ending == "completed"
    assert happened == ["hook 1", "run 2, replaced {'a': 1}"]


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


async def test_a_time_to_live_from_the_first_attempt_bounds_the_retries(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    from taskmill import Retry

    domain = Domain("d", ttl=10, ttl_from="first_attempt", retry=Retry.constant(100, delay=4))
    starts: list[float] = []

    @domain.task
    async def fail() -> None:
        starts.append(manual_clock.monotonic())
        raise OSError("no")

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await fail.submit()
    await manual_clock.advance(100)
    assert (await active(scheduler, handle.id)).expires_at is None
    async with scheduler.running():
        await manual_clock.advance(50)
    assert starts == [100, 104, 108]
    assert (await handle.wait()).ending == "expired"


async def test_a_time_to_live_of_zero_starts_at_once_or_never(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d", ttl=0)
    ran: list[int] = []

    @domain.task
    async def work(n: int) -> None:
        ran.append(n)

    scheduler = await taskmill_scheduler(domains=[domain])
    await work.submit(1)
    await scheduler.run_until_idle()
    late = await work.submit(2)
    await manual_clock.advance(0.001)
    await scheduler.run_until_idle()
    assert ran == [1]
    assert (await late.wait()).ending == "expired"


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


async def test_a_dead_letter_comes_back_behind_whoever_is_still_being_stopped_with_its_key(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    started, may_end = asyncio.Event(), asyncio.Event()

    @domain.task(key="k", retry=Retry.none())
    async def work(n: int) -> None:
        if n == 1 and not happened:
            raise ValueError("dead")
        happened.append(f"start {n}")
        try:
            if n == 2:
                started.set()
                await asyncio.Event().wait()
        finally:
            if n == 2:
                await may_end.wait()
            happened.append(f"end {n}")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        dead = await work.submit(1)
        await dead.wait()
        running = await work.submit(2)
        await started.wait()
        await running.cancel()
        await scheduler.retry_dead(dead.id)
        await manual_clock.advance(1)
        assert (await active(scheduler, dead.id)).status == "blocked"
        may_end.set()
        assert (await dead.wait()).ending == "completed"
    assert happened == ["start 2", "end 2", "start 1", "end 1"]


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


async def test_a_second_request_to_stop_does_not_cut_a_clean_up_short(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    cleaning, may_end = asyncio.Event(), asyncio.Event()

    @domain.task(timeout=1, retry=Retry.none())
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await may_end.wait()
            happened.append("cleaned")

    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        handle = await work.submit()
        await manual_clock.advance(1)
        await cleaning.wait()
        await handle.cancel()
        await manual_clock.advance(0)
        may_end.set()
        assert (await handle.wait()).ending == "cancelled"
    assert happened == ["cleaned"]


async def test_a_hook_that_outlives_shutdown_keeps_the_right_to_dispatch(
    taskmill_scheduler: SchedulerFactory, tmp_path: Path
) -> None:
    domain = Domain("d")
    started, may_end = asyncio.Event(), threading.Event()
    hook_started = asyncio.Event()
    loop = asyncio.get_running_loop()

    @domain.task(key="k", on_duplicate="supersede")
    async def work(n: int) -> None:
        started.set()
        await asyncio.Event().wait()

    @work.on_cancel
    def hook(n: int) -> None:
        loop.call_soon_threadsafe(hook_started.set)
        may_end.wait(20)

    file = str(tmp_path / "tasks.db")
    first = await taskmill_scheduler(store=file, domains=[domain], clock=SystemClock())
    async with first.running():
        await work.submit(1)
        await started.wait()
        await work.submit(2)
        await hook_started.wait()
        await first.stop(grace=0)
    second = await taskmill_scheduler(store=file, domains=[], clock=SystemClock())
    with pytest.raises(AlreadyRunning):
        await second.run_until_idle()
    may_end.set()
    while True:
        try:
            await second.run_until_idle()
        except AlreadyRunning:
            await asyncio.sleep(0.01)
        else:
            break
