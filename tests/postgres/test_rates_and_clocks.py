"""Rate limits of a node whose clock is put back while other nodes, whose clocks are right, dispatch too."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from taskmill import Domain, Group, RateLimit, Scheduler
from taskmill.testing import ManualClock

LIMIT = RateLimit(1, 10, burst=3)


@pytest.mark.parametrize("by", ["type", "group"])
async def test_a_clock_that_is_put_back_stops_no_rate_limited_work(postgres_store: str, by: str) -> None:
    clock, other_clock = ManualClock(datetime.now(UTC)), ManualClock(datetime.now(UTC))
    domain, other = Domain("d"), Domain("other")
    starts: list[float] = []

    @domain.task(rate=LIMIT if by == "type" else None)
    async def work() -> None:
        starts.append(clock.monotonic())

    groups = {"g": Group(rate=LIMIT)} if by == "group" else {}
    async with (
        Scheduler(postgres_store, domains=[domain], clock=clock, groups=groups) as node,
        Scheduler(postgres_store, domains=[other], clock=other_clock, groups=groups) as neighbour,
        node.running(),
        neighbour.running(),
    ):
        for _ in range(6):
            await work.options(group="g").submit()
        await clock.advance(4)
        await clock.jump(-timedelta(hours=1))
        for _ in range(60):
            await clock.advance(1)
    assert len(starts) == 6
    gaps = [after - before for before, after in itertools.pairwise(starts)]
    assert max(gaps) <= 20, "a step back costs at most one interval"
