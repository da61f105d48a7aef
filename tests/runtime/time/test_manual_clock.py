"""The manual clock keeps to its milliseconds, whatever floats are added up on the way."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from taskmill.testing import ManualClock

pytestmark = pytest.mark.one_engine("no store is opened")

START = datetime(2026, 1, 1, tzinfo=UTC)


async def test_whoever_sleeps_for_a_sum_of_floats_wakes_at_its_millisecond_and_time_stays_on_the_grid() -> None:
    clock = ManualClock(START)
    woken: list[timedelta] = []

    async def sleep() -> None:
        for _ in range(50):
            # 4.001 + 0.001 is a hair more than 4.002.
            await clock.sleep(0.001)
            await clock.sleep(1)
            woken.append(clock.now() - START)

    sleeping = asyncio.create_task(sleep())
    await clock.advance(51)
    await sleeping
    assert woken == [timedelta(milliseconds=1001 * n) for n in range(1, 51)]
    assert clock.now() - START == timedelta(seconds=51)


async def test_the_steady_clock_never_goes_back() -> None:
    clock = ManualClock(START)
    await clock.advance(4.002)
    seen = [clock.monotonic()]
    await clock.wait(asyncio.Event(), 4.001 + 0.001)
    seen.append(clock.monotonic())
    await clock.advance(0)
    seen.append(clock.monotonic())
    await clock.advance(0.001)
    seen.append(clock.monotonic())
    assert seen == sorted(seen)
    assert clock.now() - START == timedelta(seconds=4.003)
