"""A handler that raises an exception for ending a program fails alone; a cancellation from outside is no failure."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from taskmill import Context, Domain, Retry, Scheduler
from tests.runtime.processes import handlers as process_handlers

EXITS = [SystemExit(3), KeyboardInterrupt()]


@pytest.mark.parametrize("exit", EXITS, ids=repr)
@pytest.mark.parametrize("place", ["loop", "thread"])
async def test_a_handler_that_exits_fails_alone_by_its_retry_policy(exit: BaseException, place: str) -> None:
    domain = Domain("d")
    attempts: list[int] = []
    failed = asyncio.Event()

    @domain.task(retry=Retry.constant(1, 0))
    async def on_loop(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        await asyncio.sleep(0)
        raise exit

    @domain.task(retry=Retry.constant(1, 0))
    def in_thread(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        raise exit

    @domain.task(retry=Retry.none())
    async def neighbour() -> str:
        await failed.wait()
        return "done"

    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        innocent = await neighbour.submit()
        exiting = await (on_loop if place == "loop" else in_thread).submit()
        record = await exiting.wait(timeout=10)
        failed.set()
        assert await innocent.result(timeout=10) == "done"
    assert attempts == [1, 2]
    assert record.ending == "dead_letter"
    assert record.error == (f"{type(exit).__name__}: {exit}" if str(exit) else type(exit).__name__)


async def test_a_handler_that_exits_in_a_process_fails_alone() -> None:
    async with Scheduler(domains=[process_handlers.work], retry=Retry.none()) as scheduler, scheduler.running():
        exiting = await process_handlers.leave_politely.submit()
        innocent = await process_handlers.double.submit(4)
        assert (await exiting.wait(timeout=30)).error == "SystemExit: 3"
        assert await innocent.result(timeout=30) == 8


@pytest.mark.parametrize("exit", EXITS, ids=repr)
@pytest.mark.parametrize("place", ["loop", "thread"])
async def test_a_hook_that_exits_is_noted_and_ends_nothing_else(exit: BaseException, place: str) -> None:
    domain = Domain("d")
    started = asyncio.Event()

    @domain.task
    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    async def on_loop() -> None:
        raise exit

    def in_thread() -> None:
        raise exit

    hook: Callable[[], object] = on_loop if place == "loop" else in_thread
    work.on_cancel(hook)
    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        handle = await work.submit()
        await started.wait()
        await handle.cancel()
        record = await handle.wait(timeout=10)
        other = await work.submit()
        started.clear()
        await started.wait()
        await other.cancel()
    assert record.ending == "cancelled"
    assert type(exit).__name__ in (record.error or "")


@pytest.mark.parametrize("exit", EXITS, ids=repr)
async def test_a_finalize_that_exits_fails_alone(exit: BaseException) -> None:
    domain = Domain("d", retry=Retry.none())

    @domain.task
    async def parent(ctx: Context) -> None:
        await ctx.spawn(child.prepare())

    @domain.task
    async def child() -> str:
        return "done"

    @parent.finalize
    async def gather(ctx: Context) -> None:
        raise exit

    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        handle = await parent.submit()
        record = await handle.wait(timeout=10)
        assert await (await child.submit()).result(timeout=10) == "done"
    assert (record.ending, type(exit).__name__ in (record.error or "")) == ("dead_letter", True)


async def test_a_payload_that_exits_when_it_is_read_ends_its_own_task() -> None:
    domain = Domain("d")

    class Bomb(dict[str, int]):
        pass

    @domain.task
    async def work(n: int) -> int:
        return n

    def explode(_payload: str) -> None:
        raise SystemExit(9)

    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        healthy = work.type.signature.decode
        work.type.signature.decode = explode  # type: ignore[assignment, method-assign]
        handle = await work.submit(1)
        record = await handle.wait(timeout=10)
        work.type.signature.decode = healthy  # type: ignore[method-assign]
        assert await (await work.submit(2)).result(timeout=10) == 2
    assert (record.ending, record.error) == ("dead_letter", "the task cannot start: SystemExit: 9")


async def test_a_handler_cancelled_by_the_program_returns_to_the_queue_without_using_a_retry() -> None:
    domain = Domain("d", retry=Retry.none())
    at_work: asyncio.Queue[asyncio.Task[object] | None] = asyncio.Queue()

    @domain.task
    async def work(ctx: Context) -> int:
        at_work.put_nowait(asyncio.current_task())
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return ctx.attempt

    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        handle = await work.submit()
        task = await at_work.get()
        assert task is not None
        task.cancel()
        assert await handle.result(timeout=10) == 2
        record = await handle.record()
    assert record.retries == 0


async def test_a_failure_while_the_program_cancels_a_handler_is_an_interruption() -> None:
    domain = Domain("d", retry=Retry.none())
    at_work: asyncio.Queue[asyncio.Task[object] | None] = asyncio.Queue()

    @domain.task
    async def work(ctx: Context) -> int:
        at_work.put_nowait(asyncio.current_task())
        try:
            if ctx.attempt == 1:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("the connection was closed") from None
        return ctx.attempt

    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        handle = await work.submit()
        task = await at_work.get()
        assert task is not None
        task.cancel()
        assert await handle.result(timeout=10) == 2


async def test_a_handler_that_cancels_itself_has_failed() -> None:
    domain = Domain("d", retry=Retry.none())

    @domain.task
    async def work() -> None:
        raise asyncio.CancelledError

    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        record = await (await work.submit()).wait(timeout=10)
    assert (record.ending, record.error) == ("dead_letter", "CancelledError: the handler cancelled itself")


async def test_a_dispatcher_cancelled_twice_keeps_the_right_to_dispatch_while_a_handler_is_at_work() -> None:
    domain = Domain("d")
    started, may_end = threading.Event(), threading.Event()

    @domain.task
    def work() -> None:
        started.set()
        may_end.wait(30)

    async with Scheduler(domains=[domain], shutdown_grace=30) as scheduler:
        await work.submit()
        running = asyncio.create_task(scheduler.run())
        await asyncio.to_thread(started.wait)
        right = scheduler._session
        released: list[str] = []
        loop = right.loop
        assert loop is not None
        for _ in range(2):
            running.cancel()
            await asyncio.wait([running], timeout=0.2)
        assert running.done()
        loop.attempts.when_quiet(lambda: released.append("released"))
        before = list(released)
        may_end.set()
        async with asyncio.timeout(10):
            while not released:
                await asyncio.sleep(0.01)
    assert before == []
