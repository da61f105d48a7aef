"""A program whose event loop ends from outside while its tasks run: ``loop_victim.py STORE WAY``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time

from taskmill import Context, Domain, Retry, Scheduler

work = Domain("work", retry=Retry.none())
begun: list[str] = []
"""The types of the tasks that have begun."""


@work.task
async def sleep(ctx: Context) -> str:
    begun.append(ctx.task.type)
    if ctx.attempt == 1:
        await asyncio.sleep(3600)
    return "done"


@work.task
def sleep_in_thread(ctx: Context) -> str:
    begun.append(ctx.task.type)
    while ctx.attempt == 1 and not ctx.cancelled:
        time.sleep(0.01)
    ctx.check_cancelled()
    return "done"


@work.task
async def parent(ctx: Context) -> None:
    await ctx.spawn(child.prepare())


@work.task
async def child() -> None:
    return


@parent.finalize
async def gather(ctx: Context) -> str:
    """Run until stopped in attempt 2, then return; attempt 1 was the handler."""
    begun.append(ctx.task.type)
    if ctx.attempt == 2:
        await asyncio.sleep(3600)
    return "done"


@work.task
async def stop_slowly(ctx: Context) -> None:
    begun.append(ctx.task.type)
    await asyncio.sleep(3600)


@stop_slowly.on_cancel
async def hook(ctx: Context) -> None:
    if ctx.attempt == 1:
        begun.append("on_cancel")
        await asyncio.sleep(3600)


@work.task
async def spin(ctx: Context) -> str:
    """Keep the loop busy, so that a signal arrives while this handler's own code runs."""
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGTERM)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            pass
    return "done"


@work.task
async def swallow(ctx: Context) -> str:
    """Ignore every request to stop, the last one included."""
    begun.append(ctx.task.type)
    while ctx.attempt == 1:
        with contextlib.suppress(BaseException):
            await asyncio.sleep(3600)
    return "done"


TASKS = (sleep, sleep, sleep, sleep_in_thread, parent)


async def _begin() -> None:
    """Submit all tasks and return when all of them run."""
    for task in TASKS:
        await task.submit()
    cancelled = await stop_slowly.submit()
    while len(begun) < len(TASKS) + 1:
        await asyncio.sleep(0.01)
    await asyncio.wait([asyncio.create_task(cancelled.cancel())])
    while "on_cancel" not in begun:
        await asyncio.sleep(0.01)
    print("ready", flush=True)


def _scheduler(store: str) -> Scheduler:
    return Scheduler(store, domains=[work], shutdown_grace=1)


async def _open(store: str) -> None:
    """Leave a scheduler open, with its dispatcher in a task that nothing awaits."""
    scheduler = _scheduler(store)
    await scheduler.open()
    kept.append(asyncio.create_task(scheduler.run()))
    await _begin()


kept: list[object] = []


async def main_returns(store: str) -> None:
    await _open(store)


async def main_raises(store: str) -> None:
    await _open(store)
    raise RuntimeError("the program fails")


async def main_exits(store: str) -> None:
    await _open(store)
    sys.exit(3)


async def another_task_runs_it(store: str) -> None:
    ready = asyncio.Event()

    async def serve() -> None:
        async with _scheduler(store) as scheduler, scheduler.running():
            await _begin()
            ready.set()
            await asyncio.Event().wait()

    kept.append(asyncio.create_task(serve()))
    await ready.wait()


async def block_raises(store: str) -> None:
    async with _scheduler(store) as scheduler, scheduler.running():
        await _begin()
        raise RuntimeError("the program fails")


async def ctrl_c(store: str) -> None:
    async with _scheduler(store) as scheduler, scheduler.running():
        await _begin()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()


async def loop_closed(store: str) -> None:
    await _open(store)


async def terminated(store: str) -> None:
    """The program ends itself in a signal handler, as many do, while a handler's code runs."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))
    async with _scheduler(store) as scheduler, scheduler.running():
        await _begin()
        await spin.submit()
        await asyncio.Event().wait()


async def swallowed(store: str) -> None:
    async with _scheduler(store) as scheduler, scheduler.running():
        await _swallow()


async def swallowed_by_the_loop(store: str) -> None:
    scheduler = _scheduler(store)
    await scheduler.open()
    kept.append(asyncio.create_task(scheduler.run()))
    await _swallow()


async def _swallow() -> None:
    await swallow.submit()
    while not begun:
        await asyncio.sleep(0.01)
    print("ready", flush=True)


def main(store: str, way: str) -> None:
    if way == "loop_closed":
        # Nothing is cancelled: the loop just stops.
        loop = asyncio.new_event_loop()
        loop.run_until_complete(loop_closed(store))
        loop.close()
    else:
        asyncio.run(globals()[way](store))


if __name__ == "__main__":
    main(*sys.argv[1:])
