"""A program without file descriptors for a while: ``starved_victim.py STORE`` prints how its tasks ended."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys

from taskmill import Domain, Retry, Scheduler

work = Domain("work", retry=Retry.none())


@work.task(run_in="process")
def add(a: int, b: int) -> int:
    return a + b


@work.task
async def other() -> str:
    return "done"


def starve() -> list[int]:
    """Take every free descriptor."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    taken: list[int] = []
    while True:
        try:
            taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            return taken


async def main(store: str) -> None:
    async with Scheduler(store, domains=[work], max_concurrency=2) as scheduler, scheduler.running():
        await (await other.submit()).result(timeout=10)
        taken = starve()
        handles = [await add.submit(number, 1) for number in range(3)]
        beside = await other.submit()
        async with asyncio.timeout(20):
            while min([(await handle.record()).attempt for handle in handles]) < 2:
                await asyncio.sleep(0.05)
        records = [await handle.record() for handle in handles]
        aside = await beside.result(timeout=10)
        for descriptor in taken:
            os.close(descriptor)
        results = [await handle.result(timeout=30) for handle in handles]
    seen = [(record.retries, record.last_error) for record in records]
    print(json.dumps({"seen": seen, "results": results, "aside": aside}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
