"""A node that records the attempts it begins, and is killed: run as a program with an address and a folder."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from taskmill import Context, Domain, Scheduler

domain = Domain("d")


@domain.task
async def note(ctx: Context, folder: str, forever: bool) -> int:
    """Create a file that names this attempt; with ``forever`` the first attempt does not end."""
    with (Path(folder) / f"{ctx.task.id}.{ctx.attempt}").open("x"):
        pass
    if forever and ctx.attempt == 1:
        await asyncio.Event().wait()
    return ctx.attempt


async def main(address: str) -> None:
    async with Scheduler(address, domains=[domain]) as scheduler:
        await scheduler.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
