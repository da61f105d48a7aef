"""A node of the chaos test, run as a program with an address, a file for evidence and the length of a lease."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from taskmill import Context, Domain, Retry, RetryLater, Scheduler

domain = Domain("d", retry=Retry.constant(20, 0))
EVIDENCE = ""


def _note(what: str, ctx: Context) -> None:
    line = json.dumps([time.monotonic(), what, ctx.task.id, ctx.attempt, os.getpid()]) + "\n"
    descriptor = os.open(EVIDENCE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


@contextmanager
def _noted(ctx: Context) -> Iterator[None]:
    _note("begins", ctx)
    try:
        yield
    finally:
        _note("ends", ctx)


@domain.task
async def plain(ctx: Context, n: int) -> int:
    """Take a moment, and sometimes fail."""
    with _noted(ctx):
        await asyncio.sleep(random.uniform(0, 0.03))
        if random.random() < 0.1:
            raise RetryLater("again")
        return n


@domain.task
async def family(ctx: Context, n: int) -> int:
    """Spawn children, and end when they have ended."""
    with _noted(ctx):
        await ctx.spawn_many([plain.prepare(n) for _ in range(3)])
        await asyncio.sleep(random.uniform(0, 0.01))
        return n


@family.finalize
async def finish(ctx: Context, n: int) -> int:
    """Count the children that have completed."""
    return sum(child.ending == "completed" for child in ctx.children)


async def main(address: str) -> None:
    async with Scheduler(address, domains=[domain], max_concurrency=6, retention=None) as scheduler:
        await scheduler.run()


if __name__ == "__main__":
    from taskmill.store.postgres import lease

    EVIDENCE = sys.argv[2]
    lease.LEASE = float(sys.argv[3])
    asyncio.run(main(sys.argv[1]))
