"""What fairness costs: time per dispatched task with aging, weights, many groups and a closed rate limit.

``aging_1m_vs_1k``: with aging and weights on, 1,000,000 waiting over 1,000 waiting. ``groups_1000_vs_1``: with both on
and 200,000 waiting, those in 1,000 groups of different weights over all in one. ``rate_limited_backlog_vs_none``: the
rate of other tasks beside 100,000 that wait behind a closed rate limit, over the same without them.

The clock runs from the start of the first handler to the start of the last, so neither opening nor submitting counts.
Tasks that have run are put back, so that every round starts from the same depth.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.backlog import CHUNK, deep_file, fill_file
from benchmarks.measuring import Report, Settings, Target, flush_to_disk, interleaved, summary
from taskmill import Aging, Domain, Group, RateLimit, Scheduler, Submission

DISPATCHED = 2_000
GROUPS = 1_000
AGING = Aging(grace=1, interval=1, step=1)

GroupOf = Callable[[int], str]


def measure(settings: Settings) -> Report:
    report = Report()
    _measure_depth(settings, report)
    _measure_groups(settings, report)
    _measure_closed_rate(settings, report)
    return report


def _measure_depth(settings: Settings, report: Report) -> None:
    deep = deep_file(settings)
    shallow = settings.new_file("shallow")
    fill_file(shallow, DISPATCHED)
    fair = {"aging": AGING, "groups": {"": Group(weight=2)}}
    times = interleaved(
        settings.rounds,
        {
            "aging_1m": partial(_dispatch, deep, settings.backlog, fair),
            "aging_1k": partial(_dispatch, shallow, DISPATCHED, fair),
        },
    )
    settings.discard(shallow)
    _note(report, times)
    report.add_ratio("aging_1m_vs_1k", times["aging_1m"], times["aging_1k"], Target("<=", 1.5))


def _measure_groups(settings: Settings, report: Report) -> None:
    waiting = 200_000 // (10 if settings.quick else 1)
    fair = {"aging": AGING, "groups": {_group(n): Group(weight=1 + n % 3) for n in range(GROUPS)}}
    many, one = settings.new_file("groups"), settings.new_file("group")
    asyncio.run(_fill(many, waiting, _group))
    asyncio.run(_fill(one, waiting, lambda _: _group(0)))
    times = interleaved(
        settings.rounds,
        {
            "groups_1000": partial(_dispatch, many, waiting, fair, _group),
            "groups_1": partial(_dispatch, one, waiting, fair, lambda _: _group(0)),
        },
    )
    settings.discard(many)
    settings.discard(one)
    _note(report, times)
    report.add_ratio("groups_1000_vs_1", times["groups_1000"], times["groups_1"], Target("<=", 2.0))


def _measure_closed_rate(settings: Settings, report: Report) -> None:
    held = 100_000 // (10 if settings.quick else 1)
    limited: dict[str, Any] = {"rate": RateLimit(1, 3600)}
    files = {"beside_held": settings.new_file("held"), "alone": settings.new_file("alone")}
    for name, file in files.items():
        asyncio.run(_fill(file, DISPATCHED, lambda _: "", held if name == "beside_held" else 0))
    times = interleaved(
        settings.rounds,
        {name: partial(_dispatch, file, DISPATCHED, limited, lambda _: "") for name, file in files.items()},
    )
    for file in files.values():
        settings.discard(file)
    _note(report, times)
    report.add_ratio("rate_limited_backlog_vs_none", times["alone"], times["beside_held"], Target(">=", 0.8))


def _note(report: Report, times: Mapping[str, list[float]]) -> None:
    for name, found in times.items():
        report.about[f"{name}_us_per_task"] = summary([seconds * 1e6 for seconds in found])


def _group(n: int) -> str:
    return f"tenant-{n % GROUPS}"


def _domain(at: Callable[[], None], **held_options: Any) -> Domain:
    """Return a domain with the task type of the other measurements, and one that a rate limit may hold back."""
    domain = Domain("bench")

    @domain.task
    async def noop(i: int) -> None:
        at()

    @domain.task(**held_options)
    async def held(i: int) -> None:
        """Do nothing."""

    return domain


async def _fill(file: Path, tasks: int, group_of: GroupOf, held: int = 0) -> None:
    domain = _domain(lambda: None)
    async with Scheduler(file, domains=[domain]) as scheduler:
        await _submit(scheduler, "bench::noop", tasks, group_of)
        await _submit(scheduler, "bench::held", held, group_of)
    flush_to_disk()


async def _submit(scheduler: Scheduler, type: str, tasks: int, group_of: GroupOf) -> None:
    for start in range(0, tasks, CHUNK):
        numbers = range(start, min(start + CHUNK, tasks))
        await scheduler.submit_many([Submission(type, {"i": n}, group=group_of(n)) for n in numbers])


def _dispatch(file: Path, waiting: int, settings: Mapping[str, Any], group_of: GroupOf | None = None) -> float:
    """Return the seconds per task over ``DISPATCHED`` tasks."""
    moments: list[float] = []
    scheduler_settings = {name: value for name, value in settings.items() if name != "rate"}
    held_options = {name: value for name, value in settings.items() if name == "rate"}

    async def run() -> None:
        reached = asyncio.Event()

        def started() -> None:
            if len(moments) < DISPATCHED:
                moments.append(time.perf_counter())
            if len(moments) == DISPATCHED:
                reached.set()

        domain = _domain(started, **held_options)
        async with Scheduler(file, domains=[domain], **scheduler_settings) as scheduler:
            async with scheduler.running():
                await reached.wait()
            taken = waiting - await scheduler.count(status="pending", type="bench::noop")
            await _submit(scheduler, "bench::noop", taken, group_of or (lambda _: ""))

    asyncio.run(run())
    flush_to_disk()
    return (moments[-1] - moments[0]) / (len(moments) - 1)
