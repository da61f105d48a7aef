"""A node with short tasks, one of which stops its event loop: run as a program with an address and a folder."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from taskmill import Context, Domain, Scheduler

domain = Domain("d")
node: Scheduler | None = None
"""The scheduler of this node, if it runs as a program."""


def sign_of_hanging(folder: str) -> Path:
    """Return the file that shows that a task of the node hangs, with further tasks prefetched."""
    return Path(f"{folder}.hangs")


@domain.task
async def short(ctx: Context, folder: str, n: int) -> int:
    """Create a file that names this attempt."""
    with (Path(folder) / f"{n}.{ctx.attempt}").open("x"):
        pass
    if node is not None and node._loop is not None and len(node._loop._waiting.prefetch.tasks) > 1:
        sign_of_hanging(folder).touch()
        # The loop is blocked, so prefetched tasks neither begin nor return.
        time.sleep(60)
    return n


async def main(address: str) -> None:
    global node
    async with Scheduler(address, domains=[domain], max_concurrency=1) as node:
        await node.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
