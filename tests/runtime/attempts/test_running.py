"""Tasks run: in order, within the slots, on the loop and in threads, with results."""

from __future__ import annotations

import asyncio
import threading

import pytest

from taskmill import Context, Domain, Priority, Scheduler, TaskFailed, TaskNotFound
from taskmill.events import TaskCompleted, TaskProgressed
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


async def test_a_submitted_task_runs_and_its_result_is_returned(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d")

    @domain.task
    async def double(n: int) -> int:
        return n * 2

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    handle = await double.submit(21)
    assert handle.kind == "inserted"
    await scheduler.run_until_idle()
    assert await handle.result() == 42
    record = await handle.record()
    assert record.payload == {"n": 21}


async def test_the_most_urgent_task_runs_first_then_the_oldest(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d")
    order: list[str] = []

    @domain.task
    async def note(name: str) -> None:
        order.append(name)

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=1)
    for name, priority in [("low", 192), ("normal-1", 128), ("critical", 0), ("normal-2", 128), ("other", 130)]:
        await note.options(priority=priority).submit(name)
    await note.options(priority=Priority.HIGH, group="another").submit("high")
    await scheduler.run_until_idle()
    assert order == ["critical", "high", "normal-1", "normal-2", "other", "low"]


async def test_no_more_tasks_run_at_once_than_there_are_slots_and_the_number_can_change(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    release = asyncio.Event()
    running: set[int] = set()

    @domain.task
    async def wait(n: int) -> None:
        running.add(n)
        await release.wait()

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=2)
    await scheduler.submit_many([wait.prepare(n) for n in range(6)])
    async with scheduler.running():
        await manual_clock.advance(0)
        assert running == {0, 1}
        await scheduler.set_max_concurrency(4)
        await manual_clock.advance(0)
        assert running == {0, 1, 2, 3}
        snapshot = await scheduler.snapshot()
        assert (len(snapshot.running), snapshot.counts["pending"], snapshot.max_concurrency) == (4, 2, 4)
        assert snapshot.groups[""].running == 4
        release.set()
        await manual_clock.advance(0)
    assert await scheduler.count(status="completed") == 6


async def test_a_def_handler_runs_in_a_thread_with_a_context(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d")
    threads: list[int] = []

    @domain.task
    def work(ctx: Context, n: int) -> dict[str, int]:
        threads.append(threading.get_ident())
        ctx.progress(0.25, "quarter")
        ctx.save(seen=n)
        return {"n": n, "attempt": ctx.attempt, "seen": ctx.saved["seen"]}

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    handle = await work.submit(3)
    await scheduler.run_until_idle()
    assert await handle.result() == {"n": 3, "attempt": 1, "seen": 3}
    assert threads
    assert threads[0] != threading.get_ident()


async def test_a_task_of_a_type_without_a_handler_waits_and_does_not_block_others(tmp_path: object) -> None:
    old, new = Domain("d"), Domain("d")

    @old.task
    async def gone(n: int) -> None: ...

    @new.task
    async def here(n: int) -> int:
        return n

    async with Scheduler(f"{tmp_path}/t.db", domains=[old]) as scheduler:
        await scheduler.submit_many([gone.prepare(n) for n in range(700)])
    async with Scheduler(f"{tmp_path}/t.db", domains=[new], max_concurrency=3) as scheduler:
        handle = await here.submit(1)
        await scheduler.run_until_idle()
        assert await handle.result() == 1
        assert await scheduler.count(status="pending") == 700
        assert [task.retries for task in await scheduler.tasks()] == [0] * 700
    async with Scheduler(f"{tmp_path}/t.db", domains=[old], max_concurrency=100) as scheduler:
        await scheduler.run_until_idle()
        assert await scheduler.count() == 0


async def test_results_that_cannot_be_stored_fail_the_task_and_say_so(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task
    async def bad() -> object:
        return object()

    @domain.task
    async def huge() -> str:
        return "x" * (1024 * 1024)

    scheduler = await taskmill_scheduler(domains=[domain])
    unstorable, too_large = await scheduler.submit_many([bad.prepare(), huge.prepare()])
    await scheduler.run_until_idle()
    with pytest.raises(TaskFailed, match="cannot be stored as JSON") as caught:
        await unstorable.result()
    assert caught.value.record.ending == "failed"
    with pytest.raises(TaskFailed, match="at most 1,048,576"):
        await too_large.result()


async def test_waiting_for_a_task_that_does_not_end_times_out_on_the_schedulers_clock(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task
    async def never() -> None: ...

    await taskmill_scheduler(domains=[domain])
    handle = await never.submit()
    waiting = asyncio.create_task(handle.result(timeout=5))
    await manual_clock.advance(4.999)
    assert not waiting.done()
    await manual_clock.advance(0.001)
    with pytest.raises(TimeoutError):
        await waiting


async def test_getting_an_unknown_id_says_so(taskmill_scheduler: SchedulerFactory) -> None:
    scheduler = await taskmill_scheduler()
    with pytest.raises(TaskNotFound, match="17"):
        await scheduler.get(17)
    with pytest.raises(TaskNotFound):
        await scheduler.cancel(17)


async def test_submissions_from_inside_a_handler_run_as_well(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")
    seen: list[int] = []

    @domain.task
    async def countdown(n: int) -> None:
        seen.append(n)
        if n:
            await countdown.submit(n - 1)

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
    await countdown.submit(3)
    await scheduler.run_until_idle()
    assert seen == [3, 2, 1, 0]


async def test_a_cancelled_submit_call_never_leaves_a_stored_task_unseen(
    taskmill_scheduler: SchedulerFactory, tmp_path: object, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    ran: list[int] = []

    @domain.task
    async def note(n: int) -> None:
        ran.append(n)

    scheduler = await taskmill_scheduler(store=f"{tmp_path}/t.db", domains=[domain])
    async with scheduler.running():
        await manual_clock.advance(0)
        for spins in range(12):
            call = asyncio.create_task(note.submit(spins))
            for _ in range(spins):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
        await manual_clock.advance(0)
        assert await scheduler.count() == 0, "a stored task was not dispatched"
        assert sorted(ran) == sorted(record.payload["n"] for record in await scheduler.history())


async def test_a_hundred_thousand_reports_cost_a_handful_of_writes(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task
    async def chatty(ctx: Context) -> None:
        for n in range(100_000):
            ctx.progress(n / 100_000)
            if n % 1000 == 0:
                await asyncio.sleep(0)
        ctx.progress.bytes(1000)
        ctx.progress.advance(400)

    scheduler = await taskmill_scheduler(domains=[domain])
    listener = scheduler.events(TaskProgressed, TaskCompleted)
    handle = await chatty.submit()
    await scheduler.run_until_idle()
    record = await handle.record()
    assert record.progress is not None
    assert (record.progress.fraction, record.progress.done_bytes) == (0.4, 400)
    told = [await anext(listener) for _ in range(3)]
    # The clock stands still: one write for the first report, one for the last.
    assert [type(event) for event in told] == [TaskProgressed, TaskProgressed, TaskCompleted]
