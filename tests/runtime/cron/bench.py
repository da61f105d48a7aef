"""A setup for cron tests: a clock at ten o'clock, handlers that record when they begin, and the fired occurrences."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from taskmill.events import CronFired
from taskmill.observe.bus import Listener
from taskmill.testing import ManualClock

TEN = datetime(2030, 1, 1, 10, tzinfo=UTC)


class Bench:
    """``starts`` holds the times of day at which handlers began."""

    def __init__(self, begin: datetime = TEN) -> None:
        self.clock = ManualClock(begin)
        self.starts: list[str] = []

    @property
    def time(self) -> str:
        return self.clock.now().strftime("%H:%M:%S")

    def handler(self, *plans: float | Exception, name: str = "") -> Callable[[], Awaitable[None]]:
        """Return a handler that records its start; its runs last some seconds or raise, in order, and then succeed."""
        left = list(plans)

        async def handle() -> None:
            self.starts.append(f"{name} {self.time}".strip())
            plan = left.pop(0) if left else 0
            if isinstance(plan, Exception):
                raise plan
            if plan:
                await self.clock.sleep(plan)

        return handle


async def heard(events: Listener[Any]) -> list[tuple[str, str]]:
    """Close a listener; return the name and the occurrence of everything fired so far."""
    await events.aclose()
    return [(event.name, event.occurrence.strftime("%H:%M")) async for event in events if isinstance(event, CronFired)]
