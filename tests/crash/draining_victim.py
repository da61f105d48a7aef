"""The program that is killed while it drains short tasks: ``python -m tests.crash.draining_victim file journal``."""

from __future__ import annotations

import asyncio
import os
import sys

from taskmill import Context, Domain, Scheduler

domain = Domain("d")
journal = -1


@domain.task
async def short(ctx: Context) -> None:
    os.write(journal, f"{ctx.task.id} {ctx.attempt}\n".encode())


async def main(file: str) -> None:
    async with Scheduler(file, domains=[domain], max_concurrency=4, retention=None) as scheduler:
        print("open", flush=True)
        await scheduler.run_until_idle()


if __name__ == "__main__":
    journal = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    asyncio.run(main(sys.argv[1]))
