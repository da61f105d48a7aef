"""The bytes that handlers have moved, in every executor: as reported, and as measured."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taskmill import Context, Domain, IoBudget, Reading, Resources, Retry, Scheduler, TaskFailed
from taskmill.model.io_budget import MOST_BYTES
from taskmill.testing import ManualClock
from tests.runtime.progress import handlers
from tests.runtime.progress.handlers import BLOCK, moving

psutil = pytest.importorskip("psutil")
in_processes = pytest.mark.skipif(sys.platform == "win32", reason="worker processes need POSIX")
SAID = IoBudget(disk_read=3, net_rx=5, net_tx=10)


class Idle:
    def sample(self) -> Reading:
        return Reading()


async def moved(task: Any, *arguments: object, **settings: Any) -> IoBudget | None:
    async with Scheduler(domains=[moving], **settings) as scheduler:
        handle = await task.submit(*arguments)
        await scheduler.run_until_idle(timeout=30)
        record = await handle.wait()
    assert record.ending == "completed", record.error
    found: IoBudget | None = record.actual_io
    return found


async def test_reports_on_the_loop_and_in_threads_add_up() -> None:
    domain = Domain("d")

    @domain.task
    async def on_loop(ctx: Context) -> None:
        for _ in range(100):
            ctx.record_io(disk_read=1)
            await asyncio.sleep(0)

    @domain.task
    def in_thread(ctx: Context) -> None:
        for _ in range(100):
            ctx.record_io(disk_read=1)

    @domain.task
    def in_many_threads(ctx: Context) -> None:
        def work() -> None:
            for _ in range(2000):
                ctx.record_io(disk_read=1, net_tx=2)

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(before)

    @domain.task
    async def beyond_measure(ctx: Context) -> None:
        ctx.record_io(disk_write=MOST_BYTES)
        ctx.record_io(disk_write=MOST_BYTES)

    @domain.task
    async def nothing(ctx: Context) -> None:
        ctx.record_io()

    async with Scheduler(domains=[domain]) as scheduler:
        handles = [await task.submit() for task in (on_loop, in_thread, in_many_threads, beyond_measure, nothing)]
        await scheduler.run_until_idle(timeout=30)
        found = [(await handle.wait()).actual_io for handle in handles]
    assert found == [
        IoBudget(100),
        IoBudget(100),
        IoBudget(16_000, net_tx=32_000),
        IoBudget(disk_write=MOST_BYTES),
        None,
    ]


async def test_reports_after_the_end_are_ignored() -> None:
    domain = Domain("d")
    left_behind: list[Context] = []

    @domain.task
    async def work(ctx: Context) -> None:
        ctx.record_io(disk_read=1)
        left_behind.append(ctx)

    async with Scheduler(domains=[domain]) as scheduler:
        first = await work.submit()
        await scheduler.run_until_idle(timeout=30)
        left_behind[0].record_io(disk_read=100)
        second = await work.submit()
        await scheduler.run_until_idle(timeout=30)
        found = [(await handle.wait()).actual_io for handle in (first, second)]
        mean = (await scheduler.stats("d::work")).avg_io
    assert found == [IoBudget(1), IoBudget(1)]
    assert mean == IoBudget(1)


@in_processes
@pytest.mark.parametrize("task", [handlers.says_twice, handlers.says_twice_on_a_loop])
async def test_reports_in_a_process_add_up(task: Any) -> None:
    assert await moved(task) == SAID


@in_processes
async def test_the_writes_of_a_process_are_measured_if_the_machine_is_watched(disk_path: Path) -> None:
    path = disk_path / "large"
    watched = await moved(handlers.writes, str(path), 8, resources=True)
    if watched is None or not watched.disk_write:
        pytest.skip("this system does not tell what a process writes")
    # The file system adds a little of its own; a little may not be written yet.
    assert 7 * BLOCK <= watched.disk_write <= 16 * BLOCK
    assert watched.net_tx == watched.net_rx == 0
    assert await moved(handlers.writes, str(path), 8) is None, "no sampler measures it"


@in_processes
async def test_a_report_of_the_handler_counts_on_the_axes_that_it_names(disk_path: Path) -> None:
    found = await moved(handlers.writes_and_says, str(disk_path / "large"), 8, 123, resources=Resources(Idle()))
    assert found is not None
    assert (found.disk_write, found.net_tx, found.net_rx) == (123, 7, 0)


@in_processes
async def test_the_writes_of_one_handler_are_not_charged_to_the_next_in_the_same_process(disk_path: Path) -> None:
    async with Scheduler(domains=[moving], resources=Resources(Idle()), max_concurrency=1) as scheduler:
        first = await handlers.writes.submit(str(disk_path / "large"), 8)
        second = await handlers.does_nothing.submit()
        await scheduler.run_until_idle(timeout=30)
        one, two = (await first.wait()).actual_io, (await second.wait()).actual_io
    if one is None or not one.disk_write:
        pytest.skip("this system does not tell what a process writes")
    assert two is None or two.disk_write < BLOCK


@in_processes
async def test_a_worker_that_is_killed_loses_what_it_had_said_and_nothing_else() -> None:
    async with Scheduler(domains=[moving], resources=Resources(Idle())) as scheduler:
        handle = await handlers.dies_once.submit()
        others = await scheduler.submit_many([handlers.does_nothing.prepare() for _ in range(3)])
        await scheduler.run_until_idle(timeout=30)
        record = await handle.wait()
        endings = [(await other.wait()).ending for other in others]
        mean = (await scheduler.stats("moving::dies_once")).avg_io
    assert record.result == 1, "saved state is kept"
    assert record.actual_io is not None
    assert record.actual_io.disk_write == 99, "counted once, though it ran twice"
    assert mean is not None
    assert mean.disk_write == 99
    assert endings == ["completed"] * 3


@in_processes
async def test_the_io_of_a_failed_handler_is_kept_and_not_learned() -> None:
    async with Scheduler(domains=[moving], retry=Retry.none()) as scheduler:
        handle = await handlers.fails_having_moved.submit()
        await scheduler.run_until_idle(timeout=30)
        with pytest.raises(TaskFailed) as caught:
            await handle.result()
        mean = (await scheduler.stats("moving::fails_having_moved")).avg_io
    assert caught.value.record.actual_io == IoBudget(disk_write=99)
    assert mean is None


@in_processes
async def test_a_handler_in_a_process_reads_its_budget() -> None:
    async with Scheduler(domains=[moving]) as scheduler:
        handle = await handlers.reads_its_own.options(io=IoBudget(disk_write=5, net_tx=MOST_BYTES)).submit()
        await scheduler.run_until_idle(timeout=30)
        assert await handle.result() == {"disk_write": 5, "net_tx": MOST_BYTES}


@in_processes
async def test_budgets_of_children_travel_from_worker_processes(tmp_path: Path) -> None:
    async with Scheduler(tmp_path / "tasks.db", domains=[moving]) as scheduler:
        parent = await handlers.spawns.submit()
        wrong = await handlers.spawns_wrongly.submit()
        await scheduler.run_until_idle(timeout=30)
        children = await scheduler.history(parent=parent.id)
        said = await wrong.result()
    assert [child.io for child in reversed(children)] == [
        IoBudget(disk_write=5),
        IoBudget(net_rx=6),
        None,
        None,
        IoBudget(disk_read=7),
    ]
    assert "io" in said
    assert said.startswith(("SubmissionError", "ConfigError"))


# Over several attempts


class Life:
    """A handler that does what the test wants, attempt by attempt."""

    def __init__(self) -> None:
        self.domain = Domain("life")
        self.steps: list[Callable[[Context], Any]] = []
        self.budgets: list[IoBudget | None] = []

        @self.domain.task(retry=Retry.constant(1, 0), io=lambda i: IoBudget(disk_write=i), key=lambda i: "k")
        async def work(ctx: Context, i: int) -> int:
            self.budgets.append(ctx.task.io)
            if self.steps:
                await self.steps.pop(0)(ctx)
            return i

        self.work = work


async def test_a_retry_keeps_its_budget_and_the_last_word_on_what_was_moved_stands() -> None:
    life = Life()

    async def fail(ctx: Context) -> None:
        ctx.record_io(disk_write=1)
        raise ValueError("no")

    async def succeed(ctx: Context) -> None:
        ctx.record_io(disk_write=10)

    life.steps = [fail, succeed]
    async with Scheduler(domains=[life.domain]) as scheduler:
        handle = await life.work.submit(7)
        await scheduler.run_until_idle(timeout=30)
        record = await handle.wait()
    assert life.budgets == [IoBudget(disk_write=7)] * 2
    assert (record.io, record.actual_io) == (IoBudget(disk_write=7), IoBudget(disk_write=10))


async def test_a_task_that_runs_once_more_shows_what_its_last_run_moved(manual_clock: ManualClock) -> None:
    life = Life()
    go = asyncio.Event()

    async def wait(ctx: Context) -> None:
        ctx.record_io(disk_write=50)
        await go.wait()

    life.steps = [wait]
    async with (
        Scheduler(domains=[life.domain], clock=manual_clock) as scheduler,
        scheduler.running(),
    ):
        handle = await life.work.submit(7)
        await manual_clock.advance(0)
        again = await life.work.options(on_duplicate="requeue").submit(9)
        go.set()
        await manual_clock.advance(1)
        first, added = await handle.wait(), await again.wait()
    assert (first.result, added.result) == (7, 9)
    assert first.actual_io == IoBudget(disk_write=50)
    assert added.actual_io is None, "its own run has moved nothing"


async def test_occurrences_of_a_series_have_the_budget_of_the_first(manual_clock: ManualClock) -> None:
    life = Life()
    async with Scheduler(domains=[life.domain], clock=manual_clock) as scheduler, scheduler.running():
        await life.work.options(every=60, max_runs=3).submit(7)
        await manual_clock.advance(200)
    assert life.budgets == [IoBudget(disk_write=7)] * 3


async def test_a_dead_letter_that_is_tried_again_has_its_budget() -> None:
    life = Life()

    async def fail(_ctx: Context) -> None:
        raise ValueError("no")

    life.steps = [fail, fail]
    async with Scheduler(domains=[life.domain]) as scheduler:
        handle = await life.work.submit(7)
        await scheduler.run_until_idle(timeout=30)
        await scheduler.retry_dead(handle.id)
        await scheduler.run_until_idle(timeout=30)
        record = await scheduler.get(handle.id)
    assert life.budgets == [IoBudget(disk_write=7)] * 3
    assert record.io == IoBudget(disk_write=7)


async def test_a_replacement_is_held_by_its_own_budget(manual_clock: ManualClock) -> None:
    life = Life()
    async with Scheduler(domains=[life.domain], clock=manual_clock) as scheduler:
        first = await life.work.options(run_after=5).submit(7)
        second = await life.work.options(on_duplicate="supersede").submit(9)
        records = [(await scheduler.get(handle.id)).io for handle in (first, second)]
    assert records == [IoBudget(disk_write=7), IoBudget(disk_write=9)]
