"""The task that most measurements run: it does nothing, so that only the machinery is measured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from taskmill import Domain, Scheduler

CHUNK = 1_000
"""Tasks per ``submit_many``."""

domain = Domain("bench")


@domain.task
async def noop(i: int) -> None:
    """Nothing."""


async def fill(scheduler: Scheduler, tasks: int, chunk: int = CHUNK) -> None:
    """Submit ``tasks`` no-ops."""
    for start in range(0, tasks, chunk):
        stop = min(start + chunk, tasks)
        await scheduler.submit_many([noop.prepare(i) for i in range(start, stop)])


def countdown_domain(tasks: int, at: Callable[[int], None]) -> tuple[Domain, asyncio.Event]:
    """A domain with the same task type, whose handler counts: ``at(n)`` when the nth starts, event at the last.

    More may start before the dispatcher is stopped; they are not counted.
    """
    counting = Domain("bench")
    reached = asyncio.Event()
    started = 0

    @counting.task(name="noop")
    async def count(i: int) -> None:
        nonlocal started
        started += 1
        if started <= tasks:
            at(started)
        if started == tasks:
            reached.set()

    return counting, reached
