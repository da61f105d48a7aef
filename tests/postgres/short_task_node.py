"""A node with short tasks, one of which stops its event loop: run as a program with an address and a folder."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from taskmill import Context, Domain, Scheduler

HANGS = 30
"""The task whose first attempt hangs, in a node that runs as a program."""

domain = Domain("d")
is_program = False


@domain.task
async def short(ctx: Context, folder: str, n: int) -> int:
    """Create a file that names this attempt."""
    with (Path(folder) / f"{n}.{ctx.attempt}").open("x"):
        pass
    if is_program and n == HANGS:
        # The loop is blocked, so prefetched tasks neither begin nor return.
        time.sleep(60)
    return n


async def main(address: str) -> None:
    async with Scheduler(address, domains=[domain], max_concurrency=1) as scheduler:
        await scheduler.run()


if __name__ == "__main__":
    is_program = True
    asyncio.run(main(sys.argv[1]))
