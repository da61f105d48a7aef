"""Without reports, progress is estimated from the usual duration of the task type."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from taskmill import Context, Domain, Scheduler, TaskProgress, TaskRecord
from taskmill.testing import ManualClock


async def test_a_silent_task_is_guessed_from_its_type_and_never_above_99_percent(manual_clock: ManualClock) -> None:
    domain = Domain("d")
    wake = asyncio.Event()

    @domain.task
    async def silent(i: int) -> None:
        await manual_clock.wait(wake, manual_clock.monotonic() + 100)

    async def progress(id: int) -> TaskProgress | None:
        record = await scheduler.get(id)
        assert isinstance(record, TaskRecord)
        return record.progress

    async with Scheduler(domains=[domain], clock=manual_clock) as scheduler, scheduler.running():
        first = await silent.submit(1)
        await manual_clock.advance(50)
        unknown = await progress(first.id)
        await manual_clock.advance(50)
        second = await silent.submit(2)
        await manual_clock.advance(25)
        quarter = await progress(second.id)
        wake.clear()
        await manual_clock.advance(74.9)
        almost = await progress(second.id)
        wake.set()
    assert unknown is None, "nothing is known about the type yet"
    assert quarter == TaskProgress(fraction=0.25, eta=timedelta(seconds=75))
    assert almost is not None
    assert almost.fraction == 0.99


async def test_a_report_of_the_handler_counts(manual_clock: ManualClock) -> None:
    domain = Domain("d")
    wake = asyncio.Event()

    @domain.task
    async def work(ctx: Context, says: bool) -> None:
        if says:
            ctx.progress(0.75, "nearly")
        else:
            ctx.progress.bytes(0)
            ctx.progress.advance(10, "some")
        await manual_clock.wait(wake, manual_clock.monotonic() + 10)

    async with Scheduler(domains=[domain], clock=manual_clock) as scheduler, scheduler.running():
        await work.submit(says=True)
        await manual_clock.advance(10)
        own, counted = await work.submit(says=True), await work.submit(says=False)
        await manual_clock.advance(1)
        found = [await scheduler.get(handle.id) for handle in (own, counted)]
        wake.set()
    assert [record.progress and record.progress.fraction for record in found] == [0.75, 0.1]
    assert found[1].progress is not None
    assert (found[1].progress.message, found[1].progress.done_bytes) == ("some", 10)
