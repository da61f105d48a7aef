"""Counting what happens, for whoever scrapes.

A meter exists once somebody asks for it (:class:`taskmill.metrics.Collector`); until then nothing is counted. It is
written by the event loop alone and read by any thread: readers copy, writers never wait. Nothing is queued, so nothing
can overflow, and what a meter remembers does not grow with the number of tasks: names of groups and task types beyond
:data:`MOST_NAMES` are counted together as :data:`OTHER`. Decision 0017 says why these counters are our own.
"""

from __future__ import annotations

import importlib
from bisect import bisect_left
from collections.abc import Iterable
from typing import TypeVar

from taskmill.model.explanation import Reason
from taskmill.model.stages import Claimed
from taskmill.model.turn import Judged
from taskmill.model.verdict import End, MakeWay, Return, TryAgain, Wait

MOST_NAMES = 1000
OTHER = "(other)"

WAIT_BOUNDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
RUN_BOUNDS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
STORE_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
BATCH_BOUNDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

GATES: tuple[Reason, ...] = (
    "scheduler_paused",
    "domain_paused",
    "group_paused",
    "no_handler",
    "group_cap",
    "domain_cap",
    "group_rate",
    "type_rate",
    "pressure",
    "io",
    "slots",
    "share",
)
"""The reasons for which a dispatcher passes over what waits in its queue."""

K = TypeVar("K")


class Histogram:
    """How many values fell below each bound, and their sum. A value on a bound is below it."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def read(self) -> tuple[list[tuple[float, int]], float]:
        """For each bound, and for infinity, how many values were not above it; and the sum of all."""
        counts, total = self._counts.copy(), self._sum
        below, read = 0, list[tuple[float, int]]()
        for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
            below += count
            read.append((bound, below))
        return read, total


class Meter:
    """The counters of one scheduler in this process, since somebody first asked for them."""

    def __init__(self) -> None:
        self.events = dict.fromkeys(event_kinds(), 0)
        """Announced events, by the name of their class; each crossing of a line by aging is a ``TaskAged``."""
        self.waits: dict[str, Histogram] = {}
        """By group, from submission or from when it was due to the first start; the wait that aging counts."""
        self.runs: dict[tuple[str, str], Histogram] = {}
        """By task type and what became of the attempt."""
        self.denials: dict[Reason, int] = dict.fromkeys(GATES, 0)
        """How often a hold began, by its reason."""
        self.excess: dict[str, int] = {}
        """By group, slots it was given beyond its weight because others could not use theirs."""
        self.commit_seconds = Histogram(STORE_BOUNDS)
        self.commit_requests = Histogram(BATCH_BOUNDS)
        self.sync_seconds = Histogram(STORE_BOUNDS)

    def event(self, kind: str, count: int = 1) -> None:
        self.events[kind] = self.events.get(kind, 0) + count

    def dispatched(self, task: Claimed) -> None:
        """An attempt begins. Only the first tells how long a task has waited: later ones have run meanwhile."""
        if task.attempt == 1 and task.stop is None:
            waits = self.waits.get(task.group)
            if waits is None:
                waits = _kept(self.waits, task.group, OTHER, WAIT_BOUNDS)
            aged_from = task.queued_at if task.renewed_at is None else task.renewed_at
            # A wall clock that was set back in this moment must not make sums shrink.
            waits.observe(max(task.started_at - aged_from, 0) / 1000)

    def attempts_over(self, judged: Iterable[Judged]) -> None:
        for each in judged:
            verdict, type = each.verdict, each.task.type
            word: str = verdict.ending if isinstance(verdict, End) else outcome_word(verdict)
            runs = self.runs.get((type, word))
            if runs is None:
                runs = _kept(self.runs, (type, word), (OTHER, word), RUN_BOUNDS)
            runs.observe(each.duration_ms / 1000)

    def denied(self, reason: Reason) -> None:
        self.denials[reason] += 1

    def redistributed(self, group: str, slots: int) -> None:
        group = group if group in self.excess or len(self.excess) < MOST_NAMES else OTHER
        self.excess[group] = self.excess.get(group, 0) + slots

    def committed(self, seconds: float, requests: int) -> None:
        self.commit_seconds.observe(seconds)
        self.commit_requests.observe(requests)

    def synced(self, seconds: float) -> None:
        self.sync_seconds.observe(seconds)


def _kept(known: dict[K, Histogram], key: K, instead: K, bounds: tuple[float, ...]) -> Histogram:
    return known.setdefault(key if len(known) < MOST_NAMES else instead, Histogram(bounds))


def outcome_word(verdict: TryAgain | Return | MakeWay | Wait) -> str:
    """What became of an attempt that its task has outlived."""
    match verdict:
        case TryAgain():
            return "retried"
        case Return():
            return "returned"
        case MakeWay():
            return "preempted"
        case Wait():
            return "waiting"


def event_kinds() -> list[str]:
    """Every kind of event that can be announced, by name."""
    # Loaded here, not with this module: programs that count nothing need not wait for it.
    module = importlib.import_module("taskmill.model.events")
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, module.Event)]
    return sorted(kind.__name__ for kind in kinds if not kind.__subclasses__())
