"""The byte rate that users see is that of the bytes that move, from the first second on."""

from __future__ import annotations

import pytest

from taskmill import Context, Domain, Scheduler, TaskProgress
from taskmill.testing import ManualClock

MB = 1_000_000


@pytest.mark.parametrize("first", [0, 5 * MB, 400 * MB], ids=["nothing", "a chunk at once", "resumed"])
async def test_a_steady_handler_has_its_rate_and_time_left_after_two_seconds(first: int) -> None:
    clock = ManualClock()
    domain = Domain("rates")

    @domain.task
    async def send(ctx: Context) -> None:
        ctx.progress.bytes(1000 * MB)
        ctx.progress.advance(first)
        while True:
            await clock.sleep(0.1)
            ctx.progress.advance(5 * MB)

    async with Scheduler(domains=[domain], clock=clock) as scheduler, scheduler.running():
        handle = await send.submit()
        seen: list[TaskProgress] = []
        for _ in range(20):
            await clock.advance(0.5)
            progress = (await handle.record()).progress
            assert progress is not None
            seen.append(progress)
    assert all(each.rate is None or 45 * MB < each.rate < 55 * MB for each in seen), [each.rate for each in seen]
    for each in seen[4:]:
        assert each.eta is not None
        assert each.done_bytes is not None
        assert each.eta.total_seconds() == pytest.approx((1000 * MB - each.done_bytes) / (50 * MB), rel=0.1)
