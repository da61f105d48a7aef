"""A dispatcher that is killed while it resumes a large group and gives its tasks their paused time back."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from taskmill import Domain, Scheduler

TASKS = 20_000
TTL = 3600
work = Domain("work")


@work.task(group="large", ttl=TTL)
async def wait(n: int) -> None:
    await asyncio.sleep(3600)


async def main(file: Path, resumes: bool) -> None:
    async with Scheduler(file, domains=[work], max_concurrency=1) as scheduler:
        if resumes:
            async with scheduler.running():
                await scheduler.group("large").resume()
                print("resumed", flush=True)
                await asyncio.sleep(3600)
        for start in range(0, TASKS, 5_000):
            await scheduler.submit_many([wait.prepare(n) for n in range(start, start + 5_000)])
        await scheduler.group("large").pause()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] == "resume"))
