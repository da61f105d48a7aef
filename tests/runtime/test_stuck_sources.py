"""A source of pressure that does not answer keeps nothing from starting, nor from ending."""

from __future__ import annotations

import asyncio
import threading

from taskmill import Domain, Scheduler
from taskmill.pressure import Pressure
from taskmill.testing import ManualClock


async def test_a_source_that_never_answers_delays_the_first_start_by_half_a_minute_at_most(
    manual_clock: ManualClock,
) -> None:
    domain, answer = Domain("d"), threading.Event()
    ran: list[float] = []

    @domain.task
    async def note() -> None:
        ran.append(manual_clock.monotonic())

    stuck = Pressure("stuck", lambda: float(answer.wait(30)))
    try:
        async with Scheduler(domains=[domain], clock=manual_clock, pressure=[stuck]) as scheduler:
            await note.submit()
            running = asyncio.create_task(scheduler.run())
            await manual_clock.advance(29)
            before = list(ran)
            await manual_clock.advance(2)
            stopping = asyncio.create_task(scheduler.stop())
            await manual_clock.advance(0)
            has_stopped = stopping.done()
            answer.set()
            await asyncio.wait([stopping, running])
    finally:
        answer.set()
    assert (before, ran) == ([], [30.0])
    assert has_stopped
