"""The task types of the mixed workload. Each attempt writes its start and its end to a journal, with its token."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from taskmill import Context, Domain, Group, RateLimit, Retry, RetryLater
from taskmill.cron import Cron
from tests.cluster.pace import SPEED
from tests.crash.journal import Journal

work = Domain("work", retry=Retry.constant(100, 0))
narrow = Domain("narrow", retry=Retry.constant(100, 0), max_concurrency=3)
clockwork = Domain("clockwork")
DOMAINS = [work, narrow, clockwork]

GROUP_CAP, DOMAIN_CAP = 3, 3
PERMITS = BURST = 6
"""Starts of the rated group: per real second, and the burst."""
GROUPS = {
    "heavy": Group(weight=3),
    "light": Group(),
    "capped": Group(cap=GROUP_CAP),
    "rated": Group(rate=RateLimit(PERMITS, SPEED, BURST)),
}

JOURNAL_PATH, JOURNAL_WHO = "TASKMILL_CRASH_JOURNAL", "TASKMILL_CRASH_WHO"
"""Environment variables that name the journal of a process and of its worker processes."""


@cache
def journal() -> Journal:
    """Open the journal of this process once."""
    return Journal(Path(os.environ[JOURNAL_PATH]), os.environ[JOURNAL_WHO])


@contextmanager
def on_record(ctx: Context, marker: str, key: str | None = None, part: str = "main") -> Iterator[None]:
    """Record the start of a part of an attempt, and its end, whatever the reason."""
    task = ctx.task
    token = {"id": task.id, "attempt": ctx.attempt, "part": part}
    journal().write("start", **token, type=task.type, group=task.group, key=key, marker=marker)
    how = "done"
    try:
        yield
    except asyncio.CancelledError:
        how = "stopped"
        raise
    except BaseException as wrong:
        how = f"failed: {wrong!r}"
        raise
    finally:
        journal().write("end", **token, how=how)


def token(ctx: Context) -> str:
    """Return the token of the attempt: history must have that of the attempt that was allowed to end the task."""
    return f"{journal().who}/{ctx.attempt}"


def perhaps_again() -> None:
    if random.random() < 0.05:
        raise RetryLater("again")


@work.task(label=lambda marker, seconds: marker)
async def plain(ctx: Context, marker: str, seconds: float) -> str:
    with on_record(ctx, marker):
        await asyncio.sleep(seconds)
        perhaps_again()
    return token(ctx)


@work.task(label=lambda marker, seconds: marker)
def threaded(ctx: Context, marker: str, seconds: float) -> str:
    with on_record(ctx, marker):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ctx.check_cancelled()
            time.sleep(0.01)
        perhaps_again()
    return token(ctx)


@work.task(label=lambda marker, seconds: marker, run_in="process")
def crunch(ctx: Context, marker: str, seconds: float) -> str:
    """Run in a worker process, which must be gone before another attempt starts.

    A worker process may be killed without recording its end, so it records all the time that it is alive.
    """
    with on_record(ctx, marker):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.01)
            journal().write("alive", id=ctx.task.id, attempt=ctx.attempt)
    return token(ctx)


@work.task(key=lambda marker, name, seconds: name, label=lambda marker, name, seconds: marker)
async def keyed(ctx: Context, marker: str, name: str, seconds: float) -> str:
    with on_record(ctx, marker, key=name):
        await asyncio.sleep(seconds)
        perhaps_again()
    return token(ctx)


@keyed.on_cancel
async def keyed_stopped(ctx: Context, marker: str, name: str, seconds: float) -> None:
    """Run the hook while the task still holds the key."""
    with on_record(ctx, marker, key=name, part="hook"):
        await asyncio.sleep(0.02)


@work.task(label=lambda marker, children: marker, fail_fast=False)
async def family(ctx: Context, marker: str, children: int) -> str:
    with on_record(ctx, marker):
        prefix = f"{marker}.{ctx.attempt}"
        await ctx.spawn_many([plain.prepare(f"{prefix}.{n}", random.uniform(0, 0.2)) for n in range(children)])
        await asyncio.sleep(random.uniform(0, 0.05))
    return token(ctx)


@family.finalize
async def family_done(ctx: Context, marker: str, children: int) -> str:
    with on_record(ctx, marker, part="finalize"):
        assert len(ctx.children) >= children
        await asyncio.sleep(0.01)
    return token(ctx)


@narrow.task(label=lambda marker, seconds: marker)
async def scarce(ctx: Context, marker: str, seconds: float) -> str:
    with on_record(ctx, marker):
        await asyncio.sleep(seconds)
    return token(ctx)


@clockwork.task
async def minutely(ctx: Context) -> str:
    with on_record(ctx, "minutely", key="minutely"):
        await asyncio.sleep(0.3)
    return token(ctx)


CRON = [Cron("minutely", "* * * * *", minutely, 1)]
