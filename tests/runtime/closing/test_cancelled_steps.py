"""``run()`` is cancelled while a step of the loop commits something: it is announced all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from taskmill import Domain, Scheduler
from taskmill.cron import Cron
from taskmill.events import CronFired, GroupResumed
from taskmill.testing import ManualClock

domain = Domain("d")


@domain.task
async def job() -> None:
    pass


def cancel_at(scheduler: Scheduler, step: str, running: asyncio.Task[None]) -> None:
    """Cancel the run as soon as it waits for this step of the store."""
    original = getattr(scheduler._store, step)

    async def cancelling(*args: Any) -> Any:
        asyncio.get_running_loop().call_soon(running.cancel)
        return await original(*args)

    setattr(scheduler._store, step, cancelling)


async def test_a_firing_is_announced(tmp_path: Path, manual_clock: ManualClock) -> None:
    async with Scheduler(
        tmp_path / "tasks.db", domains=[domain], cron=[Cron("c", "* * * * *", job, 60)], clock=manual_clock
    ) as scheduler:
        running = asyncio.create_task(scheduler.run())
        await manual_clock.advance(1)
        fired = scheduler.events(CronFired)
        cancel_at(scheduler, "fire_cron", running)
        await manual_clock.advance(60)
        await asyncio.wait([running])
        task, *_ = await scheduler.tasks()
        assert (await asyncio.wait_for(anext(fired), 5)).task_id == task.id


async def test_the_end_of_a_pause_is_announced(tmp_path: Path, manual_clock: ManualClock) -> None:
    async with Scheduler(tmp_path / "tasks.db", domains=[domain], clock=manual_clock) as scheduler:
        running = asyncio.create_task(scheduler.run())
        await manual_clock.advance(1)
        await scheduler.group("g").pause(duration=5)
        resumed = scheduler.events(GroupResumed)
        cancel_at(scheduler, "end_pauses", running)
        await manual_clock.advance(6)
        await asyncio.wait([running])
        assert (await asyncio.wait_for(anext(resumed), 5)).group == "g"
