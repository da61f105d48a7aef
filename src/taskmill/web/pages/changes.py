"""Changes of settings: compared in a simulation before they are made, and applied.

A simulation uses the processor of the program. So a page runs one at a time, only for a queue of bounded size, and
stops it after some seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from msgspec import UNSET

from taskmill import Comparison, Range, Run, Status
from taskmill.web.backend import Backend, CheckedRequest
from taskmill.web.pages.groups import rate_of, settings_of
from taskmill.web.problems import RequestRefused
from taskmill.web.shapes import (
    MOST_LISTED,
    ChangedSettings,
    ChangesBody,
    SimulatedRun,
    SimulationAnswer,
    WaitComparison,
)

MOST_SIMULATED = 2_000
"""The most active tasks of a queue that the page simulates: about a second."""
SIMULATION_SECONDS = 10.0
"""How long a simulation may take, with the wait for the one before it."""
SEED = 1
"""The same durations in every comparison: two of them differ by their settings alone."""
ELSEWHERE = "“taskmill simulate” on the command line compares any number of tasks, in a process of its own"


async def simulate(backend: Backend, asked: CheckedRequest) -> SimulationAnswer:
    body: ChangesBody = asked.body
    changes = _changes(body)
    try:
        async with asyncio.timeout(SIMULATION_SECONDS), backend.simulating:
            await _check_size(backend)
            comparison = await backend.scheduler.simulate(changes, seed=SEED)
    except TimeoutError:
        text = f"the comparison took longer than {SIMULATION_SECONDS:.0f} s; {ELSEWHERE}"
        raise RequestRefused(503, "timeout", text, {"retry-after": "5"}) from None
    groups = _waits(comparison, changes.get("groups", {}))
    return SimulationAnswer(
        before=_figures(comparison.before),
        after=_figures(comparison.after),
        groups=groups[:MOST_LISTED],
        total=len(groups),
        is_exact=comparison.is_exact,
        notes=comparison.notes,
    )


async def apply(backend: Backend, asked: CheckedRequest) -> ChangedSettings:
    body: ChangesBody = asked.body
    changes = _changes(body)
    await backend.scheduler.apply(changes)
    return ChangedSettings(names=list(changes))


def _changes(body: ChangesBody) -> dict[str, Any]:
    """Return the body as the argument of ``Scheduler.simulate`` and ``Scheduler.apply``."""
    changes: dict[str, Any] = {}
    if body.max_concurrency is not UNSET:
        changes["max_concurrency"] = body.max_concurrency
    if body.groups is not UNSET:
        changes["groups"] = {name: settings_of(group) for name, group in body.groups.items()}
    if body.rates is not UNSET:
        changes["rates"] = {name: rate_of(rate) for name, rate in body.rates.items()}
    if body.resume is not UNSET:
        changes["resume"] = {name: getattr(body.resume, name) for name in body.resume.__struct_fields__}
    if not changes:
        raise RequestRefused(422, "invalid", f"give at least one of {', '.join(body.__struct_fields__)}")
    return changes


async def _check_size(backend: Backend) -> None:
    counts = (await backend.scheduler.snapshot()).counts
    active = sum(counts.get(status, 0) for status in Status)
    if active > MOST_SIMULATED:
        text = f"{active:,} tasks are active, and the page compares at most {MOST_SIMULATED:,}; {ELSEWHERE}"
        raise RequestRefused(409, "too_many", text)


def _figures(run: Run) -> SimulatedRun:
    return SimulatedRun(
        started=len(run.starts),
        unstarted=run.unstarted,
        deadlines_missed=run.deadlines_missed,
        slots_used=None if run.unstarted else run.slots_used,
        ends_at=None if run.unstarted else run.ends_at,
    )


def _waits(comparison: Comparison, changed: Collection[str]) -> list[WaitComparison]:
    before, after = comparison.before.waits.groups, comparison.after.waits.groups
    found = [_wait(name, before, after) for name in {*before, *after}]
    return sorted(found, key=lambda wait: (wait.name not in changed, -_difference(wait), wait.name))


def _wait(name: str, before: Mapping[str, Range[timedelta]], after: Mapping[str, Range[timedelta]]) -> WaitComparison:
    (now_p50, now_p90), (then_p50, then_p90) = _seconds(before.get(name)), _seconds(after.get(name))
    return WaitComparison(name=name, wait_p50=now_p50, wait_p90=now_p90, new_wait_p50=then_p50, new_wait_p90=then_p90)


def _seconds(waits: Range[timedelta] | None) -> tuple[float | None, float | None]:
    """Return the median and nine tenths of some waits."""
    if waits is None or waits.p50 is None or waits.p90 is None:
        return None, None
    return waits.p50.total_seconds(), waits.p90.total_seconds()


def _difference(wait: WaitComparison) -> float:
    """Return by how many seconds a change moves the waits of a group; a group that only starts with it moves most."""
    if wait.wait_p90 is None or wait.new_wait_p90 is None:
        return float("inf")
    return abs(wait.new_wait_p90 - wait.wait_p90)
