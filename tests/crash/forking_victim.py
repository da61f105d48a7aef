"""A dispatcher whose process forks while it holds the right to dispatch.

A forked child prints its process id and then lives for a minute, unless it is killed before.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable

from taskmill import Domain, Scheduler, Submission

forks = Domain("forks")


def live_on() -> None:
    """Be a child that outlives its parent."""
    print(os.getpid(), flush=True)
    signal.alarm(60)
    signal.pause()


def fork() -> None:
    if os.fork() == 0:
        live_on()
        os._exit(0)


def fork_by_multiprocessing() -> None:
    multiprocessing.get_context("fork").Process(target=live_on).start()


FORKS: dict[str, Callable[[], None]] = {"os": fork, "multiprocessing": fork_by_multiprocessing}


@forks.task
def in_a_thread() -> None:
    fork()


@forks.task(run_in="process")
def in_a_worker() -> None:
    fork()
    # The worker is still at work when its scheduler is killed.
    signal.pause()


async def main(file: str, part: str, how: str) -> None:
    async with Scheduler(file, domains=[forks]) as scheduler:
        async with scheduler.running():
            if part == "run":
                await scheduler.submit(Submission(f"forks::{how}", {}))
            else:
                FORKS[how]()
            if part != "stop":
                await asyncio.sleep(60)
        async with scheduler.running():
            print("runs again", flush=True)
    # Multiprocessing would wait for its child.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
