"""Overlapping pauses of a series, a group, a domain and the scheduler."""

from __future__ import annotations

from typing import Any

import pytest

from taskmill import Domain
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


@pytest.mark.parametrize("scope", ["scheduler", "domain", "group"])
async def test_a_scope_is_resumed_whatever_the_series_in_it_did_while_it_was_paused(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, scope: str
) -> None:
    """An occurrence that is created while its series is paused is paused from the start."""
    domain = Domain("d")
    runs: list[float] = []

    @domain.task
    async def tick() -> None:
        runs.append(manual_clock.monotonic())
        await manual_clock.sleep(5)

    scheduler = await taskmill_scheduler(domains=[domain])
    controls: dict[str, Any] = {
        "scheduler": scheduler,
        "domain": scheduler.domain("d"),
        "group": scheduler.group("g"),
    }
    control = controls[scope]
    async with scheduler.running():
        handle = await tick.options(every=60, group="g").submit()
        await manual_clock.advance(1)
        await scheduler.pause_recurring(handle.id)
        await manual_clock.advance(10)
        await control.pause()
        await manual_clock.advance(100)
        await control.resume()
        await manual_clock.advance(100)
        await scheduler.resume_recurring(handle.id)
        await manual_clock.advance(60)
    assert runs == [0, 240]
