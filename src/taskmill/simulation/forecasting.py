"""Forecast when tasks start and end: many simulated futures, and the ranges that most of them agree on."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, tzinfo
from typing import TypeVar

from taskmill.model.durations import from_ms
from taskmill.model.looking_ahead import Forecast, Outlook, Range
from taskmill.model.queue_state import QueuedTask, WholeQueue
from taskmill.model.status import Status
from taskmill.policy.rules import Rules
from taskmill.simulation.beginning import Beginning
from taskmill.simulation.engine import Simulation
from taskmill.simulation.luck import History
from taskmill.simulation.runs import ends_early, notes, percentiles

T = TypeVar("T", str, int)

MOST_STARTS = 200_000
"""The most starts that the samples of a forecast simulate together, about ten seconds; more only in long queues, of
which ``FEWEST_SAMPLES`` are simulated in any case."""
BEGINNING = 10
"""Setting up a simulation takes as long as this many starts."""
FEWEST_SAMPLES = 10
MOST_OCCURRENCES = MOST_STARTS // FEWEST_SAMPLES
"""The most occurrences of recurring work in one sample; a sample with more ends earlier than the horizon."""
NEVER = 2**62
"""Stands for an instant beyond the horizon."""


def sample_count(wanted: int, starts: int) -> int:
    """Return how many samples with so many starts to simulate: fewer for a large queue, whose ranges are narrower."""
    return max(min(wanted, MOST_STARTS // (starts + BEGINNING)), min(wanted, FEWEST_SAMPLES))


class _Samples:
    """The starts and ends of all tasks in all samples."""

    def __init__(self, beginning: Beginning, zone: tzinfo, wanted: int, seed: int, until: int) -> None:
        self._tasks = beginning.tasks
        self._numbers = {id: number for number, id in enumerate(beginning.tasks)}
        self.starts: list[array[int]] = []
        self.ends: list[array[int]] = []
        self.cut_at: int | None = None
        """Where the samples end if that is before the horizon."""
        history = History(beginning.queue.recent)
        sample, samples = 0, 1
        while sample < samples:
            simulation = Simulation(beginning, history.with_seed(seed * 1_000_003 + sample), zone)
            simulation.run(until, most_occurrences=MOST_OCCURRENCES)
            if not sample:
                samples = sample_count(wanted, len(self._tasks) + simulation.occurrences)
            if simulation.is_cut:
                until = self.cut_at = simulation.now
            sample += 1
            self.starts.append(array("q", [self._start(task, simulation) for task in self._tasks.values()]))
            self.ends.append(array("q", [simulation.ends.get(id, NEVER) for id in self._tasks]))
        if self.cut_at is not None:
            # The first samples may have come further than the last.
            self.starts = [_up_to(self.cut_at, found) for found in self.starts]
            self.ends = [_up_to(self.cut_at, found) for found in self.ends]

    def _start(self, task: QueuedTask, simulation: Simulation) -> int:
        if task.status is Status.RUNNING and task.started_at is not None:
            return task.started_at
        return simulation.starts.get(task.id, NEVER)

    def outlook(self, ids: Iterable[int], *, waiting_only: bool = True) -> Outlook:
        """Return when the next waiting one of these tasks starts, and when the last ends."""
        tasks = [self._tasks[id] for id in ids]
        waiting = [self._numbers[task.id] for task in tasks if task.status is not Status.RUNNING or not waiting_only]
        every = [self._numbers[task.id] for task in tasks]
        starts = [min((sample[number] for number in waiting), default=NEVER) for sample in self.starts]
        # A task that expires before it starts ends at its deadline.
        ends = [max(sample[number] for number in every) for sample in self.ends]
        return Outlook(instants(starts), instants(ends))


def _up_to(last: int, found: array[int]) -> array[int]:
    return array("q", [at if at <= last else NEVER for at in found])


def instants(found: Sequence[int]) -> Range[datetime] | None:
    """Return the range that holds eight of ten instants; None if even its lower end is beyond the horizon."""
    low, middle, high = (None if at >= NEVER else from_ms(at) for at in percentiles(sorted(found)))
    return None if low is None else Range(low, middle, high)


def forecast(queue: WholeQueue, rules: Rules, samples: int, seed: int, horizon_ms: int, zone: tzinfo) -> Forecast:
    """Simulate the queue many times, and return when its tasks start and end."""
    beginning = Beginning(queue, rules)
    found = _Samples(beginning, zone, samples, seed, queue.now + horizon_ms)
    tasks = list(beginning.tasks.values())
    return Forecast(
        empty_at=found.outlook(beginning.tasks).end if tasks else instants([queue.now]),
        groups=_by(tasks, lambda task: task.group, found),
        types=_by(tasks, lambda task: task.type, found),
        priorities=_by(tasks, lambda task: task.priority, found),
        samples=len(found.starts),
        notes=[*notes(queue, History(queue.recent)), *ends_early(found.cut_at)],
        tasks={id: found.outlook([id], waiting_only=False) for id in beginning.tasks},
    )


def _by(tasks: Sequence[QueuedTask], name_of: Callable[[QueuedTask], T], found: _Samples) -> dict[T, Outlook]:
    ids: dict[T, list[int]] = {}
    for task in tasks:
        ids.setdefault(name_of(task), []).append(task.id)
    return {name: found.outlook(ids[name]) for name in sorted(ids)}
