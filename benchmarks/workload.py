"""The task that most measurements run: it does nothing, so that only the scheduler is measured."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

from taskmill import Domain, Retention, Scheduler

CHUNK = 1_000
"""Tasks per ``submit_many``."""
DEFAULT_SLOTS: int = inspect.signature(Scheduler).parameters["max_concurrency"].default
"""How many tasks a scheduler runs at once by default."""

domain = Domain("bench")


@domain.task
async def noop(i: int) -> None:
    """Do nothing."""


async def fill(scheduler: Scheduler, tasks: int, chunk: int = CHUNK, groups: int = 1) -> None:
    """Submit ``tasks`` no-ops, ungrouped or to several groups in turn."""
    of_group = [noop] if groups == 1 else [noop.options(group=f"group-{n:05}") for n in range(groups)]
    for start in range(0, tasks, chunk):
        stop = min(start + chunk, tasks)
        await scheduler.submit_many([of_group[i % groups].prepare(i) for i in range(start, stop)])


async def check_all_ended(scheduler: Scheduler, tasks: int) -> None:
    """Raise an error unless ``tasks`` have completed, of which history may keep only the newest."""
    left, ended = await scheduler.count(), await scheduler.count(status="completed")
    kept = Retention().max_count
    if left or ended < min(tasks, tasks if kept is None else kept):
        raise AssertionError(f"{left} tasks are left and {ended} are in history, of {tasks}")


def countdown_domain(tasks: int, at: Callable[[int], None]) -> tuple[Domain, asyncio.Event]:
    """Return a domain with the same task type, whose handler counts, and an event that is set when the last one starts.

    ``at(n)`` is called when the nth starts.

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
