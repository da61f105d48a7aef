"""The counters behind the metrics.

They exist once a :class:`taskmill.metrics.Collector` asks for them; until then nothing is counted. Only the event loop
writes them, and any thread may read them: readers copy, writers never wait. Their memory does not grow with the number
of tasks: groups and task types beyond :data:`MOST_NAMES` are counted together as :data:`OTHER`. Decision 0017 explains
why these counters do not come from a metrics library.
"""

from __future__ import annotations

import importlib
from bisect import bisect_left
from collections.abc import Iterable
from typing import TypeVar

from taskmill.model.attempt import End, MakeWay, Return, TryAgain, Wait
from taskmill.model.explanation import Reason
from taskmill.model.task import Claimed
from taskmill.model.turn import Judged

MOST_NAMES = 1000
OTHER = "(other)"

WAIT_BOUNDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
RUN_BOUNDS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
STORE_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
BATCH_BOUNDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

HOLDS: tuple[Reason, ...] = (
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
"""The reasons why a dispatcher passes over waiting tasks."""

K = TypeVar("K")


class Histogram:
    """Counts values by upper bound (inclusive), and sums them."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def read(self) -> tuple[list[tuple[float, int]], float]:
        """Return, for each bound and for infinity, how many values were not above it; and the sum of all values."""
        counts, total = self._counts.copy(), self._sum
        below, read = 0, list[tuple[float, int]]()
        for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
            below += count
            read.append((bound, below))
        return read, total


class Counters:
    """The counters of one scheduler in this process, since a collector first asked for them."""

    def __init__(self) -> None:
        self.events = dict.fromkeys(event_kinds(), 0)
        """Announced events, by class name; each line that aging crosses is one ``TaskAged``."""
        self.waits: dict[str, Histogram] = {}
        """Seconds from submission, or from the due time, to the first start, by group; the wait that aging counts."""
        self.runs: dict[tuple[str, str], Histogram] = {}
        """Seconds per attempt, by task type and by what happened to the task afterwards."""
        self.denials: dict[Reason, int] = dict.fromkeys(HOLDS, 0)
        """How often a hold began, by reason."""
        self.excess: dict[str, int] = {}
        """Slots that a group got beyond its weight because others could not use theirs, by group."""
        self.commit_seconds = Histogram(STORE_BOUNDS)
        self.commit_requests = Histogram(BATCH_BOUNDS)
        self.sync_seconds = Histogram(STORE_BOUNDS)

    def event(self, kind: str, count: int = 1) -> None:
        self.events[kind] = self.events.get(kind, 0) + count

    def dispatched(self, task: Claimed) -> None:
        """Count the start of an attempt. Only the first attempt counts as a wait: later ones include run time."""
        if task.attempt == 1 and task.stop is None:
            waits = self.waits.get(task.group)
            if waits is None:
                waits = _kept(self.waits, task.group, OTHER, WAIT_BOUNDS)
            aged_from = task.queued_at if task.renewed_at is None else task.renewed_at
            # A wall clock that was just set back must not make the sum shrink.
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
    """Return the metric label of an attempt after which its task is still active."""
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
    """Return the names of all kinds of events."""
    # Imported here, so that programs without metrics do not pay for it.
    module = importlib.import_module("taskmill.model.events")
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, module.Event)]
    return sorted(kind.__name__ for kind in kinds if not kind.__subclasses__())
