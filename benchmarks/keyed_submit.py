"""``submit_dedup_vs_plain`` and ``supersede_vs_plain``: what a key costs a submit.

All sides submit with 200 callers as :mod:`benchmarks.concurrent_submit` does, into a file of their own, on the same
disk. *Plain* tasks have no key. *Dedup* submits keys that are all held by waiting tasks, which stay (``skip``).
*Supersede* submits keys that are all held by waiting tasks, each of which moves to history while its replacement is
stored. The same one by one, by a single caller that waits for the disk each time, is reported beside it. Nothing is
dispatched meanwhile; filling does not count.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from benchmarks.measuring import Report, Settings, Target, flush_to_disk, interleaved, summary
from taskmill import Domain, Handle, Scheduler, Task

CALLERS = 200
CHUNK = 1_000

domain = Domain("keyed")


@domain.task
async def plain(i: int) -> None:
    """Have no key."""


@domain.task(key=lambda i: f"order-{i}")
async def once(i: int) -> None:
    """Keep a waiting task with the same key."""


@domain.task(key=lambda i: f"order-{i}", on_duplicate="supersede")
async def latest(i: int) -> None:
    """Replace a waiting task with the same key."""


SIDES: dict[str, tuple[Task[[int], None], str]] = {
    "plain": (plain, "inserted"),
    "dedup": (once, "duplicate"),
    "supersede": (latest, "superseded"),
}
"""For each side: what it submits, and what must become of it."""


def measure(settings: Settings) -> Report:
    report = Report()
    report.about |= {"submits": settings.tasks, "callers": CALLERS, "one_by_one_submits": settings.samples}
    for suffix, tasks, callers in (("", settings.tasks, CALLERS), ("_one_by_one", settings.samples, 1)):
        sides = {name: partial(_rate, settings, name, tasks, callers) for name in SIDES}
        rates = interleaved(settings.rounds, sides)
        for name, found in rates.items():
            report.about[f"{name}{suffix}_submits_per_s"] = summary(found)
        for number, name, limit in (("submit_dedup_vs_plain", "dedup", 0.6), ("supersede_vs_plain", "supersede", 0.4)):
            report.add_ratio(number + suffix, rates[name], rates["plain"], None if suffix else Target(">=", limit))
    return report


def _rate(settings: Settings, side: str, tasks: int, callers: int) -> float:
    """Return the submits per second."""
    file = settings.new_file(side)
    task, wanted = SIDES[side]

    async def call(numbers: range) -> list[Handle[Any]]:
        return [await task.submit(i) for i in numbers]

    async def submit_all() -> float:
        async with Scheduler(file, domains=[domain]) as scheduler:
            if wanted != "inserted":
                for start in range(0, tasks, CHUNK):
                    await scheduler.submit_many([task.prepare(i) for i in range(start, min(start + CHUNK, tasks))])
            flush_to_disk()
            began = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                calling = [group.create_task(call(range(first, tasks, callers))) for first in range(callers)]
            took = time.perf_counter() - began
            kinds = {handle.kind for done in calling for handle in done.result()}
            stored = await scheduler.count(status="pending")
            if kinds != {wanted} or stored != tasks:
                raise AssertionError(f"{side}: {kinds}, and {stored} of {tasks} tasks wait")
            return took

    took = asyncio.run(submit_all())
    settings.discard(file)
    return tasks / took
