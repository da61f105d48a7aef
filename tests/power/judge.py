"""The judge opens a derived disk with the real code, and returns the guarantees that it breaks."""

from __future__ import annotations

import asyncio
from pathlib import Path

from taskmill import Scheduler, TaskmillError
from tests.power.disks import Disk
from tests.power.promises import Promises, Setting, Stored
from tests.power.workload import Pace, plain, scheduler_on

LONGEST_DRAIN = 60
NEW = "asked by the judge"


def lay_out(disk: Disk, folder: Path) -> None:
    """Make the folder equal to the disk."""
    for path in folder.iterdir():
        path.unlink()
    for name, content in disk.items():
        (folder / name).write_bytes(content)


def judge(file: Path, promises: Promises) -> list[str]:
    """Open the store, check it, run everything, and check again."""
    try:
        return asyncio.run(_judge(file, promises))
    except (TaskmillError, TimeoutError) as wrong:
        return [f"broken: the store cannot be used: {type(wrong).__name__}: {wrong}"]


async def _judge(file: Path, promises: Promises) -> list[str]:
    async with scheduler_on(str(file), "process", Pace(0)) as scheduler:
        complaints = [*promises.broken_by(Stored(file), await _setting(scheduler))]
        handle = await plain.submit(NEW)
        promises.checked += 1
        if handle.id <= promises.highest_id:
            complaints.append(f"lost: the id {handle.id} was acknowledged, and is given again")
        await _drain(scheduler)
    return [*complaints, *promises.broken_at_the_end(Stored(file))]


async def _setting(scheduler: Scheduler) -> Setting:
    snapshot = await scheduler.snapshot()
    return Setting(
        paused=frozenset(snapshot.paused_groups),
        weights={name: group.weight for name, group in snapshot.groups.items()},
        caps={name: group.cap for name, group in snapshot.groups.items()},
    )


async def _drain(scheduler: Scheduler) -> None:
    for group in (await scheduler.snapshot()).paused_groups:
        await scheduler.group(group).resume()
    await scheduler.run_until_idle(timeout=LONGEST_DRAIN)
