"""A fraction is from 0 to 1, whatever a handler reports. No report makes a record unreadable or ends dispatching."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from taskmill import ConfigError, Context, Domain, Scheduler


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
    _moved(10**30, 1),
    _moved(100, 10**400),
    lambda ctx: ctx.progress.of(10**400, 10**401),
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


async def test_a_message_with_part_of_a_file_name_that_is_not_text_is_stored() -> None:
    domain = Domain("bounds")

    @domain.task
    async def work(ctx: Context) -> None:
        ctx.progress(0.5, b"caf\xe9.txt".decode("utf-8", "surrogateescape"))

    async with Scheduler(domains=[domain]) as scheduler:
        handle = await work.submit()
        await scheduler.run_until_idle()
        progress = (await handle.record()).progress
        assert progress is not None
        assert progress.message == "caf?.txt"


WRONG: list[tuple[str, Callable[[Context], None]]] = [
    ("fraction must be a number from 0 to 1, not bool", lambda ctx: ctx.progress(True)),
    ("message must be a string, not int", lambda ctx: ctx.progress(0.5, 1)),  # type: ignore[arg-type]
    ("message must be a string, not bytes", lambda ctx: ctx.progress.of(1, 2, b"x")),  # type: ignore[arg-type]
    ("message must be a string, not int", lambda ctx: ctx.progress.advance(1, 2)),  # type: ignore[arg-type]
    ("total must be an int, in bytes", lambda ctx: ctx.progress.bytes(True)),
]


@pytest.mark.parametrize(("message", "report"), WRONG, ids=range(len(WRONG)))
async def test_a_report_of_a_wrong_type_is_refused_and_the_record_stays_readable(
    message: str, report: Callable[[Context], None]
) -> None:
    domain = Domain("bounds")

    @domain.task
    async def work(ctx: Context) -> None:
        with pytest.raises(ConfigError, match=message):
            report(ctx)

    async with Scheduler(domains=[domain]) as scheduler:
        handle = await work.submit()
        await scheduler.run_until_idle()
        assert (await handle.record()).state == "completed"
