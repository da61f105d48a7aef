"""A dispatcher that is killed while it measures its machine, learns the capacity of its disk and holds tasks back."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from taskmill import Domain, IoBudget, Priority, Reading, Resources, Scheduler
from taskmill.pressure import Pressure

MB = 1_000_000
work = Domain("work")


@work.task(io=lambda mb: IoBudget(disk_write=mb * MB))
async def write(mb: int) -> int:
    await asyncio.sleep(3600)
    return mb


class BusyDisk:
    def sample(self) -> Reading:
        return Reading(disk_write=50.0 * MB, disk_busy=1.0)


def pressed() -> float:
    return 0.6


async def main(file: Path) -> None:
    resources = Resources(BusyDisk(), interval=0.02)
    async with Scheduler(file, domains=[work], resources=resources, pressure=[Pressure("disk", pressed)]) as scheduler:
        await write.submit(60)
        await write.submit(60)
        await write.options(priority=Priority.LOW).submit(0)
        async with scheduler.running():
            while (await scheduler._store.machine()) is None or await scheduler.count(status="running") < 1:
                await asyncio.sleep(0.01)
            print("ready", flush=True)
            await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
