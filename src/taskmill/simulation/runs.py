"""Simulated runs of a whole queue, and their summaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta, tzinfo
from typing import TypeVar

import msgspec

from taskmill.model.durations import from_ms
from taskmill.model.looking_ahead import Comparison, Range, Run, Waits
from taskmill.model.queue_state import PastTask, QueuedTask, WholeQueue
from taskmill.model.status import Status
from taskmill.policy.rules import Rules
from taskmill.policy.wording import clock_text, plural
from taskmill.simulation.beginning import Beginning
from taskmill.simulation.changes import TriedChanges, changed_rules
from taskmill.simulation.engine import Simulation
from taskmill.simulation.luck import History, KnownLuck, Luck

T = TypeVar("T")

DEFAULT_HORIZON_MS = 7 * 24 * 3600 * 1000
MOST_OCCURRENCES = 40_000
"""The most occurrences of recurring work in one run: a few seconds. A run with more ends earlier than the horizon."""


def compare(
    queue: WholeQueue, rules: Rules, changes: TriedChanges, seed: int, horizon_ms: int, zone: tzinfo
) -> Comparison:
    """Run the queue under the rules in force and under changed ones, with the same luck."""
    history = History(queue.recent)
    luck = history.with_seed(seed)
    beginning = Beginning(queue, rules)
    changed = beginning.under(changed_rules(rules, changes, queue.now))
    before, after, cut_at = _both(beginning, changed, luck, queue.now + horizon_ms, zone)
    return Comparison(
        before=before,
        after=after,
        is_exact=queue.turns is not None,
        notes=[*_estimates(queue), *notes(queue, history), *ends_early(cut_at)],
    )


def replay(
    past: Sequence[PastTask],
    queue: WholeQueue,
    since: int,
    rules: Rules,
    changes: TriedChanges,
    horizon_ms: int,
    zone: tzinfo,
) -> Comparison:
    """Run ended tasks again, as they were submitted and for as long as they took, with an empty queue before them."""
    controls = msgspec.structs.replace(rules.controls, pauses={}, ended_pauses=(), buckets={})
    rules = Rules(rules.declared, controls)
    queue = msgspec.structs.replace(
        queue, now=since, tasks=[_arriving(task) for task in past], waits_for=(), series=(), crons=(), turns=None
    )
    queue.controls, queue.unknown_types = controls, frozenset()
    luck = KnownLuck({task.id: task.duration_ms for task in past})
    changed = Beginning(queue, changed_rules(rules, changes, since))
    before, after, _ = _both(Beginning(queue, rules), changed, luck, since + horizon_ms, zone)
    return Comparison(
        before=before,
        after=after,
        is_exact=False,
        notes=[f"{plural(len(past), 'task that has', 'tasks that have')} ended, without their retries and pauses"],
    )


def _arriving(task: PastTask) -> QueuedTask:
    """Return a task that arrives when it was submitted, or when it was due."""
    at = max(task.created_at, task.due_at or 0)
    return QueuedTask(
        id=task.id,
        type=task.type,
        group=task.group,
        priority=task.priority,
        urgency=task.priority,
        status=Status.SCHEDULED,
        created_at=task.created_at,
        queued_at=at,
        renewed_at=None,
        due_at=at,
        expires_at=task.expires_at,
        started_at=None,
        paused_at=None,
        clock_from=task.created_at,
        place_id=task.id,
        retries=0,
        may_expire=task.expires_at is not None,
        io=task.io,
        gate_id=None,
        parent_id=None,
        held=False,
        series_id=None,
        cron=None,
        on_dependency_failure=None,
        overrides=None,
        children=0,
    )


def _estimates(queue: WholeQueue) -> list[str]:
    if queue.turns is not None:
        return []
    return ["the turns of groups and the permits of rate limits are estimated: only the dispatcher knows them"]


def notes(queue: WholeQueue, history: History) -> list[str]:
    """Return what a simulation of the queue has to assume."""
    strange = sorted({task.type for task in queue.tasks if not history.knows(task.type)})
    if not strange:
        return []
    names = ", ".join(strange[:3]) + (", …" if len(strange) > 3 else "")
    return [f"no run of {names} has ended yet, so other types, or 1 s, stand for their durations"]


def ends_early(cut_at: int | None) -> list[str]:
    """Return what to say if simulations end before the horizon; ``cut_at`` is where, None if they do not."""
    if cut_at is None:
        return []
    return [f"recurring tasks run so often that only the time until {clock_text(cut_at)} is simulated"]


def _both(before: Beginning, after: Beginning, luck: Luck, until: int, zone: tzinfo) -> tuple[Run, Run, int | None]:
    """Run two queues with the same luck to the same instant; return it if it is before ``until``."""
    cut_at: int | None = None
    first = _simulated(before, luck, until, zone)
    if first.is_cut:
        until = cut_at = first.now
    second = _simulated(after, luck, until, zone)
    if second.is_cut:
        until = cut_at = second.now
        first = _simulated(before, luck, until, zone)
    return _run(before, first), _run(after, second), cut_at


def _simulated(beginning: Beginning, luck: Luck, until: int, zone: tzinfo) -> Simulation:
    simulation = Simulation(beginning, luck, zone)
    simulation.run(until, most_occurrences=MOST_OCCURRENCES)
    simulation.stop()
    return simulation


def _run(beginning: Beginning, simulation: Simulation) -> Run:
    """Return the summary of a run."""
    starts = {id: at for id, at in simulation.starts.items() if id > 0}
    waits = {id: simulation.waits[id] for id in starts}
    tasks, running = beginning.tasks, {task.id for task in beginning.running}
    length = simulation.now - beginning.now
    return Run(
        starts={id: from_ms(at) for id, at in starts.items()},
        waits=Waits(_ranges(waits, lambda one: tasks[one].group), _ranges(waits, lambda one: tasks[one].priority)),
        deadlines_missed=len(simulation.expired),
        slots_used=simulation.busy_ms / length if length else 0.0,
        io=simulation.io,
        unstarted=sum(id not in starts and id not in simulation.ends and id not in running for id in tasks),
        ends_at=from_ms(simulation.now),
    )


def _ranges(waits: Mapping[int, int], name_of: Callable[[int], T]) -> dict[T, Range[timedelta]]:
    found: dict[T, list[int]] = {}
    for id, wait in waits.items():
        found.setdefault(name_of(id), []).append(wait)
    return {name: _span(found[name]) for name in sorted(found, key=str)}


def _span(waits: Iterable[int]) -> Range[timedelta]:
    low, middle, high = percentiles(sorted(waits))
    return Range(*(timedelta(milliseconds=each) for each in (low, middle, high)))


def percentiles(values: Sequence[T]) -> tuple[T, T, T]:
    """Return the values at one tenth, the half and nine tenths of a sorted list."""
    last = len(values) - 1
    return values[round(0.1 * last)], values[round(0.5 * last)], values[round(0.9 * last)]
