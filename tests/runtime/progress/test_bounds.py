"""A fraction is between 0 and 1, whatever a handler reports."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from taskmill import Context, Domain, Scheduler


def _moved(total: int, n: int) -> Callable[[Context], None]:
    """Return a report of ``n`` bytes out of ``total``."""

    def report(ctx: Context) -> None:
        ctx.progress.bytes(total)
        ctx.progress.advance(n)

    return report


REPORTS: list[Callable[[Context], None]] = [
    lambda ctx: ctx.progress(1.5),
    lambda ctx: ctx.progress(-0.5),
    lambda ctx: ctx.progress(float("nan")),
    lambda ctx: ctx.progress.of(-1, 4),
    lambda ctx: ctx.progress.of(5, 4),
    _moved(100, -10),
    _moved(100, 200),
    _moved(-100, 10),
]


@pytest.mark.parametrize("report", REPORTS, ids=range(len(REPORTS)))
async def test_a_fraction_is_never_below_zero_nor_above_one(report: Callable[[Context], None]) -> None:
    domain = Domain("bounds")

    @domain.task
    async def work(ctx: Context) -> None:
        report(ctx)

    async with Scheduler(domains=[domain]) as scheduler:
        handle = await work.submit()
        await scheduler.run_until_idle()
        progress = (await handle.record()).progress
        assert progress is not None
        assert progress.fraction is None or 0 <= progress.fraction <= 1
        assert progress.done_bytes is None or progress.done_bytes >= 0
        assert progress.total_bytes is None or progress.total_bytes >= 0
