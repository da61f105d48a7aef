"""Cancellation: waiting tasks end at once, running ones are asked, hooked, and bounded by a deadline."""

from __future__ import annotations

import asyncio
import threading

import pytest

from taskmill import ConfigError, Context, Domain, Retry, Scheduler, TaskFailed
from taskmill.events import TaskCancelled
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.raw_rows import raw


async def test_a_waiting_task_ends_at_once_and_never_runs(taskmill_scheduler: SchedulerFactory, any_store: str) -> None:
    domain = Domain("d")
    ran: list[int] = []

    @domain.task
    async def work(n: int) -> None:
        ran.append(n)

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    listener = scheduler.events(TaskCancelled)
    pending, delayed, other = await scheduler.submit_many(
        [work.prepare(1), work.options(run_after=60).prepare(2), work.prepare(3)]
    )
    assert await pending.cancel()
    assert await delayed.cancel()
    assert not await pending.cancel(), "it has ended already"
    await scheduler.run_until_idle()
    assert ran == [3]
    assert (await pending.record()).ending == "cancelled"  # type: ignore[union-attr]
    assert {(await anext(listener)).task_id for _ in range(2)} == {pending.id, delayed.id}
    with pytest.raises(TaskFailed, match="cancelled"):
        await delayed.result()
    assert await other.result() is None


async def test_a_running_handler_gets_cancelled_error_then_its_hook_runs_then_history(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d", state=[{"bucket": "b"}])
    happened: list[str] = []
    started = asyncio.Event()

    @domain.task
    async def upload(ctx: Context, name: str) -> None:
        await ctx.save(upload_id="u1")
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            happened.append("handler ended")

    @upload.on_cancel
    async def abort(ctx: Context, name: str) -> None:
        happened.append(f"abort {ctx.saved['upload_id']} of {name} in {ctx.state(dict)['bucket']}")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    handle = await upload.submit("a.jpg")
    async with scheduler.running():
        await started.wait()
        assert await handle.cancel()
        assert (await handle.wait()).ending == "cancelled"
    assert happened == ["handler ended", "abort u1 of a.jpg in b"]


async def test_a_late_success_of_a_cancelled_attempt_is_dropped(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")
    started = asyncio.Event()

    @domain.task
    async def stubborn() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "finished all the same"
        return ""

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await stubborn.submit()
    async with scheduler.running():
        await started.wait()
        await handle.cancel()
        record = await handle.wait()
    assert (record.ending, record.result) == ("cancelled", None)
    assert len(await scheduler.history()) == 1


async def test_a_thread_sees_the_request_and_ends(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")
    started = threading.Event()

    @domain.task
    def loop(ctx: Context) -> None:
        started.set()
        while True:
            ctx.check_cancelled()
            threading.Event().wait(0.001)

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await loop.submit()
    async with scheduler.running():
        await asyncio.to_thread(started.wait)
        await handle.cancel()
        assert (await handle.wait()).ending == "cancelled"


async def test_a_handler_that_ignores_cancellation_is_recorded_after_the_deadline_and_keeps_its_slot(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    domain = Domain("d")
    started, release = threading.Event(), threading.Event()
    ran: list[str] = []

    @domain.task
    def deaf() -> None:
        started.set()
        release.wait(30)

    @domain.task
    async def other() -> None:
        ran.append("other")

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1, cancel_timeout=5)
    handle = await deaf.submit()
    async with scheduler.running():
        await asyncio.to_thread(started.wait)
        await other.submit()
        await handle.cancel()
        await manual_clock.advance(4.9)
        assert (await handle.record()).status == "running"  # type: ignore[union-attr]
        await manual_clock.advance(0.2)
        record = await handle.wait()
        assert record.ending == "cancelled"
        assert "did not stop within 5 s" in (record.error or "")
        assert ran == [], "the thread still holds the only slot"
        assert "its slot stays taken" in caplog.text
        release.set()
        while not ran:
            await manual_clock.advance(0)
    assert ran == ["other"]


@pytest.mark.parametrize("kind", ["raises", "hangs", "hangs in a thread"])
async def test_a_hook_that_fails_or_hangs_is_bounded_and_noted(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, kind: str
) -> None:
    domain = Domain("d")
    started = asyncio.Event()
    release = threading.Event()

    @domain.task
    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    if kind == "hangs in a thread":

        @work.on_cancel
        def blocked() -> None:
            release.wait(30)
    else:

        @work.on_cancel
        async def hook() -> None:
            if kind == "raises":
                raise RuntimeError("abort failed")
            await asyncio.Event().wait()

    scheduler = await taskmill_scheduler(domains=[domain], cancel_timeout=3)
    handle = await work.submit()
    async with scheduler.running():
        await started.wait()
        await handle.cancel()
        await manual_clock.advance(3)
        record = await handle.wait()
        release.set()
    assert record.ending == "cancelled"
    expected = "abort failed" if kind == "raises" else "did not end within 3 s"
    assert expected in (record.error or "")


async def test_cancel_where_cancels_what_matches_and_refuses_to_cancel_everything(
    taskmill_scheduler: SchedulerFactory,
) -> None:
    domain = Domain("d")

    @domain.task
    async def work(n: int) -> None: ...

    scheduler = await taskmill_scheduler(domains=[domain])
    handles = await scheduler.submit_many(
        [work.options(group="a" if n % 2 else "b", tags={"n": str(n)}).prepare(n) for n in range(6)]
    )
    assert await scheduler.cancel_where(group="a") == [handles[n].id for n in (1, 3, 5)]
    assert await scheduler.cancel_where(tags={"n": "2"}) == [handles[2].id]
    assert await scheduler.cancel_where(before=handles[4].id) == [handles[0].id]
    assert await scheduler.count(status="cancelled") == 5
    with pytest.raises(ConfigError, match="at least one filter"):
        await scheduler.cancel_where()


async def test_another_scheduler_on_the_file_can_cancel_a_running_task(tmp_path: object) -> None:
    domain = Domain("d")
    started = asyncio.Event()
    hooked: list[str] = []

    @domain.task
    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    @work.on_cancel
    async def hook() -> None:
        hooked.append("yes")

    async with Scheduler(f"{tmp_path}/t.db", domains=[domain]) as one, Scheduler(f"{tmp_path}/t.db") as two:
        handle = await work.submit()
        async with one.running():
            await started.wait()
            assert await two.cancel(handle.id)
            assert (await handle.wait(timeout=10)).ending == "cancelled"
    assert hooked == ["yes"]


async def test_a_cancellation_that_loses_its_process_still_runs_the_hook(tmp_path: object) -> None:
    """The request is durable: the next dispatcher runs the hook and records the ending."""
    domain = Domain("d")
    hooked: list[str] = []
    ran: list[int] = []

    @domain.task(retry=Retry.none())
    async def work(n: int) -> None:
        ran.append(n)

    @work.on_cancel
    async def hook(ctx: Context, n: int) -> None:
        hooked.append(f"{n} {ctx.saved}")

    async with Scheduler(f"{tmp_path}/t.db", domains=[domain]) as scheduler:
        handle = await work.submit(1)
    with raw(f"{tmp_path}/t.db") as connection:
        connection.execute(
            "UPDATE taskmill_task SET"
            " status = 'running', attempt = 1, started_at = 1, stop = 'cancel', saved = '{\"a\": 1}'"
        )
    async with Scheduler(f"{tmp_path}/t.db", domains=[domain]) as scheduler:
        await scheduler.run_until_idle()
        record = await scheduler.get(handle.id)
    assert record.ending == "cancelled"  # type: ignore[union-attr]
    assert (ran, hooked) == ([], ["1 {'a': 1}"])
