"""A process whose wall clock is stepped while it works; the monotonic clock, the file and the passing time are real.

Each line of its input is a command, ``{"step": seconds}`` or ``{"submit": run_after}``. It prints one line for each
run: what ran, when by the monotonic clock of the machine, and when it was requested.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import UTC, datetime, timedelta

from taskmill import Domain, Scheduler
from taskmill.core.clock import SystemClock
from taskmill.events import RecurringSkipped
from taskmill.store.postgres import lease

LEASE = 5.0
"""The lease on PostgreSQL, in seconds: the tasks of a killed process run again after it."""

work = Domain("work")


class SteppedClock(SystemClock):
    """The system's clock, with a wall clock that is ``ahead`` seconds ahead."""

    ahead: float = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.ahead)

    def now_ms(self) -> int:
        return super().now_ms() + round(self.ahead * 1000)


def say(**words: object) -> None:
    print(json.dumps({"at": time.monotonic(), **words}), flush=True)


@work.task(key="tick")
async def tick() -> None:
    say(ran="tick")


@work.task
async def later(asked_at: float) -> None:
    say(ran="later", asked_at=asked_at)


async def commands() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def tell_skips(scheduler: Scheduler) -> None:
    async for event in scheduler.events(RecurringSkipped):
        assert isinstance(event, RecurringSkipped)
        say(skipped=event.count)


async def main(store: str, ahead: float, every: float | None) -> None:
    clock = SteppedClock()
    clock.ahead = ahead
    async with Scheduler(store, domains=[work], clock=clock) as scheduler, scheduler.running():
        telling = asyncio.create_task(tell_skips(scheduler))
        if every is not None:
            await tick.options(every=every).submit()
        say(ran="ready")
        orders = await commands()
        while line := await orders.readline():
            order = json.loads(line)
            if "step" in order:
                clock.ahead += order["step"]
            else:
                await later.options(run_after=order["submit"], ttl=order.get("ttl")).submit(time.monotonic())
        telling.cancel()


if __name__ == "__main__":
    lease.LEASE = LEASE
    given = json.loads(sys.argv[1])
    asyncio.run(main(given["store"], given["ahead"], given["every"]))
