"""How long simulated attempts take, and which of them fail: drawn from the history of their type.

A draw depends on the seed, the task and the attempt only, and not on the order of the starts. So two runs under
different settings have the same durations and failures, and differ by the settings alone.

Laws: every duration drawn for a type is one that a run of the type had; the same seed gives the same draws.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from taskmill.model.queue_state import EndedRun
from taskmill.model.status import Ending

ENOUGH_RUNS = 20
"""A group with so many runs of a type has durations of its own, if they differ from those of the type."""
DIFFERENCE = 0.25
"""The fraction by which the medians must differ for that."""
ASSUMED_MS = 1000
"""The duration of a task if no run of any task is known."""
_FAILURES = (Ending.FAILED, Ending.DEAD_LETTER)
_WORD = (1 << 64) - 1


def uniform(*numbers: int) -> float:
    """Return a number in [0, 1) that looks random and depends on the given ones only."""
    x = 0x9E3779B97F4A7C15
    for number in numbers:
        # One round of splitmix64 for each number.
        x = (x + number + 0x9E3779B97F4A7C15) & _WORD
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
        x ^= x >> 31
    return x / (_WORD + 1)


class Drawn(NamedTuple):
    """One attempt: how long it takes, and whether it fails."""

    duration_ms: int
    fails: bool


class Luck(Protocol):
    """Decides how attempts go."""

    def draw(self, type: str, group: str, id: int, attempt: int) -> Drawn:
        """Return how an attempt of a task goes."""
        ...

    def left(self, type: str, group: str, id: int, elapsed_ms: int) -> Drawn:
        """Return how much longer an attempt takes that has run for a while."""
        ...

    def jitter(self, id: int, attempt: int) -> float:
        """Return the random number for the delay of a retry."""
        ...


class _Runs:
    """The runs of one type, or of one type in one group."""

    __slots__ = ("failed", "failure_rate", "succeeded")

    def __init__(self, runs: Sequence[EndedRun]) -> None:
        succeeded = sorted(run.duration_ms for run in runs if run.ending not in _FAILURES)
        failed = sorted(run.duration_ms for run in runs if run.ending in _FAILURES)
        failures = len(failed) + sum(run.retries for run in runs)
        self.failure_rate = failures / (failures + len(succeeded)) if failures else 0.0
        self.succeeded = succeeded or failed
        self.failed = failed or succeeded

    def durations(self, *, fails: bool) -> Sequence[int]:
        return self.failed if fails else self.succeeded

    @property
    def median(self) -> int:
        return self.succeeded[len(self.succeeded) // 2]


class History:
    """The known runs, from which attempts are drawn."""

    def __init__(self, recent: Mapping[str, Sequence[EndedRun]]) -> None:
        self._types = {type: _Runs(runs) for type, runs in recent.items() if runs}
        everything = [run for runs in recent.values() for run in runs]
        self._others = _Runs(everything or [EndedRun("", Ending.COMPLETED, ASSUMED_MS, 0)])
        self._groups: dict[tuple[str, str], _Runs] = {}
        for type, runs in recent.items():
            by_group: dict[str, list[EndedRun]] = {}
            for run in runs:
                by_group.setdefault(run.group, []).append(run)
            for group, own in by_group.items():
                if len(own) >= ENOUGH_RUNS and len(by_group) > 1:
                    found = _Runs(own)
                    usual = self._types[type].median
                    if abs(found.median - usual) > DIFFERENCE * max(usual, 1):
                        self._groups[type, group] = found

    def knows(self, type: str) -> bool:
        """True if a run of the type is known."""
        return type in self._types

    def runs_of(self, type: str, group: str) -> _Runs:
        return self._groups.get((type, group)) or self._types.get(type) or self._others

    def with_seed(self, seed: int) -> DrawnLuck:
        return DrawnLuck(self, seed)


class DrawnLuck:
    """Draws attempts from history."""

    def __init__(self, history: History, seed: int) -> None:
        self._history = history
        self._seed = seed

    def draw(self, type: str, group: str, id: int, attempt: int) -> Drawn:
        runs = self._history.runs_of(type, group)
        fails = runs.failure_rate > 0 and uniform(self._seed, id, attempt, 1) < runs.failure_rate
        durations = runs.durations(fails=fails)
        if len(durations) == 1:
            return Drawn(durations[0], fails)
        return Drawn(durations[int(uniform(self._seed, id, attempt) * len(durations))], fails)

    def left(self, type: str, group: str, id: int, elapsed_ms: int) -> Drawn:
        runs = self._history.runs_of(type, group)
        fails = runs.failure_rate > 0 and uniform(self._seed, id, -1, 1) < runs.failure_rate
        durations = runs.durations(fails=fails)
        first = bisect_right(durations, elapsed_ms)
        longer = len(durations) - first
        if not longer:
            # It already takes longer than any known run: assume that it is near its end.
            return Drawn(elapsed_ms // 10, fails)
        return Drawn(durations[first + int(uniform(self._seed, id, -1) * longer)] - elapsed_ms, fails)

    def jitter(self, id: int, attempt: int) -> float:
        return uniform(self._seed, id, attempt, 2)


class TypicalLuck:
    """Every attempt succeeds and takes as long as the runs of its type take on average, failed attempts included."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._means: dict[tuple[str, str], Drawn] = {}

    def draw(self, type: str, group: str, id: int, attempt: int) -> Drawn:  # noqa: ARG002 - the type is enough
        known = self._means.get((type, group))
        if known is None:
            runs = self._history.runs_of(type, group)
            mean = sum(runs.succeeded) / len(runs.succeeded)
            # Some of the tasks never succeed, so the number of attempts is bounded.
            known = Drawn(round(mean / max(1 - runs.failure_rate, 0.25)), fails=False)
            self._means[type, group] = known
        return known

    def left(self, type: str, group: str, id: int, elapsed_ms: int) -> Drawn:
        drawn = self.draw(type, group, id, 0)
        return Drawn(max(drawn.duration_ms - elapsed_ms, 0), fails=False)

    def jitter(self, id: int, attempt: int) -> float:  # noqa: ARG002 - nothing fails
        return 1.0


class EqualLuck:
    """Every attempt takes equally long and succeeds."""

    def __init__(self, duration_ms: int) -> None:
        self._drawn = Drawn(duration_ms, fails=False)

    def draw(self, type: str, group: str, id: int, attempt: int) -> Drawn:  # noqa: ARG002 - all are alike
        return self._drawn

    def left(self, type: str, group: str, id: int, elapsed_ms: int) -> Drawn:  # noqa: ARG002
        return self._drawn

    def jitter(self, id: int, attempt: int) -> float:  # noqa: ARG002
        return 1.0


class KnownLuck:
    """Every attempt takes as long as it is known to have taken; for replays."""

    def __init__(self, durations: Mapping[int, int]) -> None:
        self._durations = durations

    def draw(self, type: str, group: str, id: int, attempt: int) -> Drawn:  # noqa: ARG002 - the id is enough
        return Drawn(self._durations[id], fails=False)

    def left(self, type: str, group: str, id: int, elapsed_ms: int) -> Drawn:  # noqa: ARG002
        return Drawn(max(self._durations[id] - elapsed_ms, 0), fails=False)

    def jitter(self, id: int, attempt: int) -> float:  # noqa: ARG002
        return 1.0
