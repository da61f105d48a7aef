"""A standby process with one cron task, on a clock whose minute takes a second: ``cron_rival FILE JOURNAL``.

It adds to the journal, each on a line with its process and the real time: ``fired OCCURRENCE``, ``begin ID`` and
``end ID``. It runs until it is killed or its input is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo

from taskmill import Context, Domain, Scheduler
from taskmill.core.clock import SystemClock
from taskmill.cron import Cron
from taskmill.events import CronFired

SPEED = 60
WORK = 0.2
"""Duration of a run, in real seconds; part of the load."""
domain = Domain("rival")


class FastClock(SystemClock):
    """A clock that runs faster, and at the same pace in all processes of a machine."""

    speed = SPEED

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    def now_ms(self) -> int:
        return 1_900_000_000_000 + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_MONOTONIC) * self.speed

    def zone(self) -> tzinfo:
        return UTC

    async def wait(self, event: asyncio.Event, until: float | None) -> None:
        left = 1.0 if until is None else min((until - self.monotonic()) / self.speed, 1.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(left, 0)):
                await event.wait()


@domain.task
async def work(ctx: Context) -> None:
    note = ctx.state(Note)
    note(f"begin {ctx.task.id}")
    await asyncio.sleep(WORK)
    note(f"end {ctx.task.id}")


class Note:
    """A journal whose lines are written whole: many processes may append to one file."""

    def __init__(self, file: str) -> None:
        self._journal = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def __call__(self, fact: str) -> None:
        os.write(self._journal, f"{os.getpid()} {time.monotonic_ns()} {fact}\n".encode())


async def tell(scheduler: Scheduler, note: Callable[[str], None]) -> None:
    async for event in scheduler.events(CronFired):
        if isinstance(event, CronFired):
            note(f"fired {int(event.occurrence.timestamp())}")


async def main(file: str, journal: str) -> None:
    note = Note(journal)
    cron = [Cron("minutely", "* * * * *", work, 1)]
    async with Scheduler(file, cron=cron, clock=FastClock(), state=[note]) as scheduler:
        telling = asyncio.create_task(tell(scheduler, note))
        running = asyncio.create_task(scheduler.run(standby=True))
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await scheduler.stop(grace=10 * SPEED)
        await running
        telling.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
