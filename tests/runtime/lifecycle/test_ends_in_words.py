"""``TaskFailed`` and ``explain`` say why a task did not complete, also if no error is stored with it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from taskmill import Context, Domain, Handle, RetryLater, Scheduler, TaskFailed
from taskmill.testing import ManualClock

domain = Domain("d")


@domain.task(key="one")
async def work() -> None: ...


@domain.task
async def later() -> None:
    raise RetryLater("not yet", after=600)


@domain.task
async def parent(ctx: Context) -> None:
    await ctx.spawn(work.options(run_after=600, ttl=1000).prepare())
    raise RetryLater("not yet", after=600)


async def said(scheduler: Scheduler, handle: Handle[None]) -> str:
    """Return the message of ``TaskFailed``, after checking that ``explain`` says the same."""
    with pytest.raises(TaskFailed) as failed:
        await handle.result()
    head, _, why = str(failed.value).partition(": ")
    ended_at = failed.value.record.ended_at
    assert str(await scheduler.explain(handle.id)) == (
        f"{head.replace('task', 'Task')} at {ended_at:%Y-%m-%d %H:%M:%S} UTC: {why}."
    )
    assert failed.value.record.error is None
    return why


async def test_an_expired_task_names_its_deadline() -> None:
    clock = ManualClock(datetime(2026, 11, 19, 11, 59, tzinfo=UTC))
    async with Scheduler(domains=[domain], clock=clock) as scheduler, scheduler.running():
        waits = await work.options(ttl=60, run_after=120).submit()
        retries = await later.options(ttl=60).submit()
        await clock.advance(61)
        assert await said(scheduler, waits) == "it did not start before its deadline, 2026-11-19 12:00:00 UTC"
        assert await said(scheduler, retries) == "it did not start again before its deadline, 2026-11-19 12:00:00 UTC"


async def test_a_child_that_expires_with_its_parent_says_so() -> None:
    clock = ManualClock()
    async with Scheduler(domains=[domain], clock=clock) as scheduler, scheduler.running():
        above = await parent.options(ttl=60).submit()
        await clock.advance(0)
        (child,) = await scheduler.tasks(parent=above.id)
        await clock.advance(61)
        assert await said(scheduler, work.handle(child.id)) == "it expired together with its parent"


async def test_a_cancelled_or_superseded_task_says_what_happened() -> None:
    clock = ManualClock()
    async with Scheduler(domains=[domain], clock=clock) as scheduler, scheduler.running():
        old = await work.options(run_after=60).submit()
        new = await work.options(run_after=60, on_duplicate="supersede").submit()
        retries = await later.submit()
        await clock.advance(1)
        await new.cancel()
        await retries.cancel()
        assert await said(scheduler, old) == "another task has replaced it"
        assert await said(scheduler, new) == "it was cancelled before it started"
        assert await said(scheduler, retries) == "it was cancelled"
