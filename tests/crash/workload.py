"""The task types that the children of the crash tests run. Each attempt records its start and its end.

Their durations are part of the load; nothing is awaited with them. They decide how many tasks run when the kill comes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from taskmill import Context, Domain, GiveUp, Retry
from tests.crash.journal import Journal

domain = Domain("crash", tags={"made": "here"})

noticed: Callable[[], None] = lambda: None  # noqa: E731 - replaced by children that tell when they start to work

STEPS = 4
JOURNAL_PATH, JOURNAL_WHO = "TASKMILL_CRASH_JOURNAL", "TASKMILL_CRASH_WHO"
"""Environment variables with the journal of worker processes, and the name in which they write."""


def start(ctx: Context) -> None:
    ctx.state(Journal).write("start", id=ctx.task.id, attempt=ctx.attempt, step=ctx.saved.get("step", 0))
    noticed()


def done(ctx: Context, marker: str) -> str:
    result = f"{marker} by attempt {ctx.attempt}"
    ctx.state(Journal).write("end", id=ctx.task.id, attempt=ctx.attempt, how="done", result=result)
    return result


def failed(ctx: Context) -> None:
    ctx.state(Journal).write("end", id=ctx.task.id, attempt=ctx.attempt, how="failed")


def stopped(ctx: Context) -> None:
    ctx.state(Journal).write("end", id=ctx.task.id, attempt=ctx.attempt, how="stopped")


def hook_begins(ctx: Context) -> None:
    ctx.state(Journal).write("hook", id=ctx.task.id, attempt=ctx.attempt)


def hook_ends(ctx: Context) -> None:
    ctx.state(Journal).write("hooked", id=ctx.task.id, attempt=ctx.attempt)


@domain.task
async def quick(ctx: Context, marker: str) -> str:
    start(ctx)
    return done(ctx, marker)


@domain.task(tags=lambda marker: {"pace": "slow"}, group="slow")
async def slow(ctx: Context, marker: str) -> str:
    start(ctx)
    try:
        for part in range(3):
            ctx.progress(part / 3)
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        stopped(ctx)
        raise
    return done(ctx, marker)


@slow.on_cancel
async def slow_cancelled(ctx: Context, marker: str) -> None:
    hook_begins(ctx)
    await asyncio.sleep(0.02)
    hook_ends(ctx)


@domain.task(priority=64)
def threaded(ctx: Context, marker: str) -> str:
    start(ctx)
    for _ in range(4):
        if ctx.cancelled:
            stopped(ctx)
            ctx.check_cancelled()
        time.sleep(0.01)
    return done(ctx, marker)


@threaded.on_cancel
def threaded_cancelled(ctx: Context, marker: str) -> None:
    hook_begins(ctx)
    time.sleep(0.01)
    hook_ends(ctx)


@domain.task(retry=Retry.constant(3, 0))
async def flaky(ctx: Context, marker: str, fails: int) -> str:
    """Fail as often as the policy allows, with immediate retries, and then succeed."""
    start(ctx)
    if ctx.task.retries < fails:
        failed(ctx)
        raise RuntimeError("not yet")
    return done(ctx, marker)


@domain.task(retry=Retry.constant(2, 0.02))
def flaky_thread(ctx: Context, marker: str) -> str:
    """Fail; its retries have a delay, so that they are scheduled rather than pending."""
    start(ctx)
    if ctx.task.retries < 2:
        failed(ctx)
        raise RuntimeError("not yet")
    return done(ctx, marker)


@domain.task(retry=Retry.constant(1, 0))
async def stepper(ctx: Context, marker: str) -> str:
    """Fail once half-way, and continue from the saved state."""
    start(ctx)
    goal = STEPS // 2 if ctx.task.retries == 0 else STEPS
    for step in range(ctx.saved.get("step", 0) + 1, goal + 1):
        ctx.state(Journal).write("saving", id=ctx.task.id, step=step)
        await ctx.save(step=step)
        ctx.state(Journal).write("saved", id=ctx.task.id, step=step)
    if ctx.task.retries == 0:
        failed(ctx)
        raise RuntimeError("half-way")
    return done(ctx, marker)


@domain.task
def stepper_thread(ctx: Context, marker: str) -> str:
    start(ctx)
    for step in range(ctx.saved.get("step", 0) + 1, STEPS + 1):
        ctx.state(Journal).write("saving", id=ctx.task.id, step=step)
        ctx.save(step=step)
        ctx.state(Journal).write("saved", id=ctx.task.id, step=step)
    return done(ctx, marker)


@domain.task(retry=Retry.constant(1, 0), tags={"fate": "doomed"})
async def doomed(ctx: Context, marker: str) -> None:
    """Become a dead letter."""
    start(ctx)
    failed(ctx)
    raise RuntimeError("never")


@domain.task
async def hopeless(ctx: Context, marker: str) -> None:
    start(ctx)
    failed(ctx)
    raise GiveUp("no use")


@domain.task(key=lambda marker, name: name)
async def keyed(ctx: Context, marker: str, name: str) -> str:
    start(ctx)
    await asyncio.sleep(0.03)
    return done(ctx, marker)


@domain.task(ttl=0.02)
async def fleeting(ctx: Context, marker: str) -> str:
    """Expire often; only tasks of this type may be pruned from history."""
    start(ctx)
    return done(ctx, marker)


@domain.task(run_in="process")
def crunch(ctx: Context, marker: str) -> str:
    """Run in a worker process, which must be gone before another attempt starts."""
    journal = Journal(Path(os.environ[JOURNAL_PATH]), os.environ[JOURNAL_WHO])
    journal.write("start", id=ctx.task.id, attempt=ctx.attempt, step=0)
    time.sleep(0.02)
    result = f"{marker} by attempt {ctx.attempt}"
    journal.write("end", id=ctx.task.id, attempt=ctx.attempt, how="done", result=result)
    return result


@domain.task(priority=0)
async def poison(ctx: Context, marker: str) -> None:
    start(ctx)
    os.kill(os.getpid(), signal.SIGKILL)


WITH_HOOK = {slow.name, threaded.name}
PLAIN: list[Any] = [quick, slow, threaded, flaky_thread, stepper, stepper_thread, doomed, hopeless]
"""Task types that need only a marker."""
RETRIES = {flaky.name: 3, flaky_thread.name: 2, stepper.name: 1, doomed.name: 1}
"""The most retries of each type; the others have the default of three."""
