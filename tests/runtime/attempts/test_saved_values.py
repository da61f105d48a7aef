"""``ctx.saved`` and ``ctx.replaced`` are plain JSON values: a handler may return, save and pass them on."""

from __future__ import annotations

import math

from taskmill import Context, Domain, InvalidState, Retry, Scheduler
from taskmill.testing import ManualClock

SAVED = {"upload": {"parts": [1, 2]}}

domain = Domain("saving")


@domain.task(key="upload")
async def upload(ctx: Context, path: str) -> object:
    await ctx.save(**SAVED)
    return {"saved": ctx.saved, "replaced": ctx.replaced}


@domain.task
def upload_in_thread(ctx: Context) -> object:
    ctx.save(**SAVED)
    return ctx.saved


@domain.task
async def keep_a_copy(ctx: Context) -> object:
    await ctx.save(**SAVED)
    await ctx.save(copy=ctx.saved)
    return ctx.saved


@domain.task
async def pass_on(ctx: Context) -> None:
    await ctx.save(**SAVED)
    await ctx.spawn(receive.prepare(ctx.saved))


@domain.task
async def receive(values):  # type: ignore[no-untyped-def]  # an unannotated parameter is what is tested
    return values


async def test_a_handler_may_return_its_saved_values() -> None:
    async with Scheduler(domains=[domain]) as scheduler:
        on_the_loop = await upload.submit("a")
        in_a_thread = await upload_in_thread.submit()
        await scheduler.run_until_idle()
        assert await on_the_loop.result() == {"saved": SAVED, "replaced": None}
        assert await in_a_thread.result() == SAVED


async def test_a_handler_may_return_the_saved_values_that_it_replaces() -> None:
    clock = ManualClock()
    waits = Domain("waits")

    @waits.task(key="one")
    async def transfer(ctx: Context, again: bool) -> object:
        if ctx.replaced is None:
            await ctx.save(**SAVED)
            raise ValueError("stopped half way")
        return ctx.replaced

    async with Scheduler(domains=[waits], clock=clock) as scheduler, scheduler.running():
        await transfer.options(retry=Retry.constant(1, 60)).submit(again=False)
        await clock.advance(1)
        newer = await transfer.options(on_duplicate="supersede").submit(again=True)
        await clock.advance(1)
        assert await newer.result() == SAVED


async def test_saved_values_may_be_saved_again_and_passed_to_a_child() -> None:
    async with Scheduler(domains=[domain]) as scheduler:
        copied = await keep_a_copy.submit()
        parent = await pass_on.submit()
        await scheduler.run_until_idle()
        assert await copied.result() == {**SAVED, "copy": SAVED}
        (child,) = await scheduler.history(parent=parent.id)
        assert child.payload == {"values": SAVED}
        assert child.result == SAVED


async def test_nan_and_infinity_are_not_saved_as_null() -> None:
    numbers = Domain("numbers")
    refused: list[str] = []

    @numbers.task
    async def measure(ctx: Context) -> object:
        await ctx.save(before=1.5)
        for value in (math.nan, [math.inf], {"deep": -math.inf}):
            try:
                await ctx.save(value=value)
            except InvalidState as wrong:
                refused.append(str(wrong))
        return ctx.saved

    async with Scheduler(domains=[numbers]) as scheduler:
        handle = await measure.submit()
        await scheduler.run_until_idle()
        assert await handle.result() == {"before": 1.5}
    assert len(refused) == 3
    assert all("NaN" in message for message in refused)
