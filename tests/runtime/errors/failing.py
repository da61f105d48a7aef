"""Handlers that fail, on the event loop, in threads and in worker processes, and a program that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

from taskmill import Context, Domain, GiveUp, Retry, RetryLater, Scheduler

work = Domain("work", retry=Retry.none())


def raise_deep(message: str) -> None:
    raise ValueError(message)


@work.task
async def on_loop(message: str) -> None:
    raise_deep(message)


@work.task
def in_thread(message: str) -> None:
    raise_deep(message)


@work.task(run_in="process")
def in_process(message: str) -> None:
    raise_deep(message)


@work.task(run_in="process")
async def in_process_on_loop(message: str) -> None:
    raise_deep(message)


@work.task
async def give_up() -> None:
    raise GiveUp("no use")


@work.task(retry=Retry.constant(1, 0))
async def retry_later() -> None:
    raise RetryLater("busy", after=5)


@work.task(timeout=2)
async def stuck_on_loop() -> None:
    await asyncio.Event().wait()


@work.task(timeout=2)
def stuck_in_thread(ctx: Context) -> None:
    while True:
        ctx.check_cancelled()
        time.sleep(0.01)


@work.task(timeout=2, run_in="process")
def stuck_in_process() -> None:
    time.sleep(60)


@work.task(run_in="process", retry=Retry.none())
def kill_own_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@work.task
async def say_that_it_runs() -> None:
    print("running", flush=True)
    await asyncio.Event().wait()


async def main(store: str) -> None:
    async with Scheduler(store, domains=[work]) as scheduler:
        await scheduler.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
