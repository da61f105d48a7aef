"""Whatever message a handler reports, it cannot stop the scheduler or make a record unreadable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from taskmill import Context, Domain, HistoryRecord, Retry, Scheduler


def _advance(ctx: Context, message: Any) -> None:
    ctx.progress.bytes(2)
    ctx.progress.advance(1, message)


WAYS: list[Callable[[Context, Any], None]] = [
    lambda ctx, message: ctx.progress(0.5, message),
    lambda ctx, message: ctx.progress.of(1, 2, message),
    _advance,
]


@pytest.mark.parametrize("way", WAYS, ids=["fraction", "of", "advance"])
async def test_a_message_with_a_file_name_that_is_not_utf8_is_stored(way: Callable[[Context, Any], None]) -> None:
    domain = Domain("messages")

    @domain.task
    async def work(ctx: Context) -> None:
        way(ctx, "grün \udcff")

    async with Scheduler(domains=[domain]) as scheduler:
        handle = await work.submit()
        await scheduler.run_until_idle()
        record = await handle.record()
        assert (record.state, record.progress and record.progress.message) == ("completed", "grün ?")


@pytest.mark.parametrize("message", [5, b"text", object()], ids=["int", "bytes", "object"])
@pytest.mark.parametrize("way", WAYS, ids=["fraction", "of", "advance"])
async def test_a_message_that_is_no_text_is_an_error_of_the_handler(
    way: Callable[[Context, Any], None], message: object
) -> None:
    domain = Domain("messages", retry=Retry.none())

    @domain.task
    async def work(ctx: Context) -> None:
        way(ctx, message)

    async with Scheduler(domains=[domain]) as scheduler:
        handle = await work.submit()
        await scheduler.run_until_idle()
        record = await handle.record()
        assert isinstance(record, HistoryRecord)
        assert record.ending == "dead_letter"
        assert record.error == f"ConfigError: message must be a string, not {type(message).__name__}"


def _keep_quiet(ctx: Context) -> None:
    """Report a message, and then progress of each kind without one."""
    ctx.progress(0.1, "scanning")
    ctx.progress(0.2)
    ctx.progress.of(1, 4)
    ctx.progress.bytes(2)
    ctx.progress.advance(1)


async def on_the_loop(ctx: Context) -> None:
    _keep_quiet(ctx)


def in_a_thread(ctx: Context) -> None:
    _keep_quiet(ctx)


@pytest.mark.parametrize("handler", [on_the_loop, in_a_thread])
async def test_a_message_stays_until_it_is_replaced_also_if_its_report_is_not_written(handler: Any) -> None:
    domain = Domain("messages")
    work = domain.task(handler)
    async with Scheduler(domains=[domain]) as scheduler:
        handle = await work.submit()
        await scheduler.run_until_idle()
        progress = (await handle.record()).progress
        assert progress is not None
        assert (progress.fraction, progress.message) == (0.5, "scanning")
