"""The program behind the page under test: a workload of many kinds of tasks, dispatched here or in another process.

As a program, ``python -m tests.web.service STORE`` dispatches the store until it is terminated.
"""

from __future__ import annotations

import asyncio
import sys

from taskmill import Aging, Context, Domain, GiveUp, Group, Retry, Scheduler
from taskmill.cron import Cron

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[2J"

sync = Domain("sync", tags={"team": "storage"})


@sync.task(key=lambda path: path, tags={"user": "ann"})
async def send(path: str) -> int:
    """Take at least a millisecond, so that simulated runs have a duration on any machine."""
    await asyncio.sleep(0.002)
    return len(path)


@sync.task(retry=Retry.none())
async def lose(path: str) -> None:
    raise ConnectionError(f"no route for {path}")


@sync.task
async def give_up(path: str) -> None:
    raise GiveUp(f"404 {path}")


@sync.task
async def watch(ctx: Context, folder: str) -> None:
    """Run until cancelled."""
    await ctx.save(folder=folder)
    ctx.progress.of(1, 4, f"watching {folder}")
    await asyncio.Event().wait()


@sync.task
async def sweep() -> None:
    """Do nothing; cron runs it."""


def scheduler_of(store: str) -> Scheduler:
    return Scheduler(
        store,
        domains=[sync],
        cron=[Cron("nightly", "30 2 * * *", sweep, 60)],
        max_concurrency=3,
        groups={"s3://prod/a": Group(weight=3), "backup": Group(weight=1, cap=2)},
        aging=Aging(),
        durability="process",
        shutdown_grace=0,
    )


async def main(store: str) -> None:
    async with scheduler_of(store) as scheduler, scheduler.running():
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
