"""A dispatcher whose process forks while it holds the right to dispatch.

A forked child prints its process id and then lives for a minute, unless it is killed before.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from taskmill import Domain, Scheduler, Submission

forks = Domain("forks")


def live_on(told: int) -> None:
    """Run as a child that outlives its parent."""
    os.write(sys.stdout.fileno(), f"{os.getpid()}\n".encode())
    os.write(told, b".")
    signal.alarm(60)
    signal.pause()


@contextmanager
def child_heard() -> Iterator[int]:
    """Wait until the child has printed its process id."""
    heard, told = os.pipe()
    yield told
    os.read(heard, 1)
    os.close(heard)
    os.close(told)


def fork() -> None:
    with child_heard() as told:
        if os.fork() == 0:
            live_on(told)
            os._exit(0)


def fork_by_multiprocessing() -> None:
    with child_heard() as told:
        multiprocessing.get_context("fork").Process(target=live_on, args=(told,)).start()


FORKS: dict[str, Callable[[], None]] = {"os": fork, "multiprocessing": fork_by_multiprocessing}


@forks.task
def in_a_thread() -> None:
    fork()


@forks.task(run_in="process")
def in_a_worker() -> None:
    fork()
    # The worker process still runs when its scheduler is killed.
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
