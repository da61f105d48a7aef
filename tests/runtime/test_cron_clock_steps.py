"""Cron tasks and a wall clock that is stepped: it is noticed in time, whatever sleeps and whoever refuses."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from taskmill import Scheduler, clock
from taskmill.clock import SystemClock
from taskmill.cron import Cron
from taskmill.model.durations import from_ms, to_ms
from tests.runtime.cron_bench import TEN

HOURLY = "0 * * * *"
LONGEST_DELAY = 60
"""What a step of the clock, or a suspended machine, may delay a cron task by, in seconds."""


class SteppedClock(SystemClock):
    """The system's clock, begun a minute after ten; it can be put forward while others wait on it."""

    def __init__(self) -> None:
        self.step = timedelta()
        self._begun = self.monotonic()

    def now(self) -> datetime:
        return from_ms(self.now_ms())

    def now_ms(self) -> int:
        return to_ms(TEN + timedelta(minutes=1, seconds=self.monotonic() - self._begun) + self.step)

    def zone(self) -> tzinfo:
        return UTC


async def test_the_system_clock_looks_up_although_nothing_wakes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clock._LONGEST_WAIT <= LONGEST_DELAY / 2
    monkeypatch.setattr(clock, "_LONGEST_WAIT", 0.05)
    stepped, ran = SteppedClock(), asyncio.Event()

    async def work() -> None:
        ran.set()

    async with Scheduler(cron=[Cron("tick", HOURLY, work, 1)], clock=stepped) as scheduler, scheduler.running():
        early = ran.is_set()
        stepped.step = timedelta(hours=1)
        await asyncio.wait_for(ran.wait(), 20)
    assert not early
