"""A step of the wall clock is noticed in time by cron, whatever sleeps and even if the store refuses the change."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from taskmill import Scheduler, StoreBusy, StoreError
from taskmill.core import clock
from taskmill.core.clock import SystemClock
from taskmill.cron import Cron
from taskmill.model.durations import from_ms, to_ms
from tests.runtime.cron.bench import TEN, Bench

HOURLY = "0 * * * *"
LONGEST_DELAY = 60
"""The longest delay of a cron task by a step of the clock or a suspended machine, in seconds."""


class SteppedClock(SystemClock):
    """The system's clock, started a minute after ten; the test can put it forward while others wait on it."""

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


async def test_a_step_back_that_the_store_refuses_is_reported_again_within_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, told = Bench(TEN + timedelta(minutes=1)), list[tuple[int, str]]()
    async with Scheduler(cron=[Cron("tick", HOURLY, bench.handler(), 1)], clock=bench.clock) as scheduler:
        shift, refusals = scheduler._store.shift_clock, [StoreBusy("busy"), StoreError("full")]

        async def refuse(by_ms: int) -> None:
            told.append((by_ms, bench.time))
            if refusals:
                raise refusals.pop()
            await shift(by_ms)

        monkeypatch.setattr(scheduler._store, "shift_clock", refuse)
        async with scheduler.running():
            await bench.clock.advance(60)
            await bench.clock.jump(-3600)
            await bench.clock.advance(3600)
    assert told == [(-3_600_000, "09:02:00"), (-3_600_000, "09:02:01"), (-3_600_000, "09:02:02")]
    assert bench.starts == ["10:00:00"]
