"""Whose turn it is: the memory that makes sharing fair over time.

Where slots are shared (:mod:`taskmill.policy.shares`), :class:`Service` tells which group is furthest behind its
portion. Where they are not, priority is global, and :class:`Ring` lets the groups take turns among equally urgent
tasks.

Laws: with more groups than slots each gets its portion over time, whatever its name; no group with a portion waits for
ever, however many others come and go; none gains by having been idle.
"""

from __future__ import annotations

from collections.abc import Container

LEAST_MS = 100
"""What a start costs its group, in milliseconds of a slot. A task that holds it longer costs the rest when it ends.

So groups of long tasks get no more of the slots than groups of short ones; and below this, where durations are mostly
noise, tasks simply count.
"""
_MOST_REMEMBERED = 64
_MOST_CREDIT_MS = 10 * LEAST_MS


class Service:
    """Fair queueing in virtual time: per group the time at which its next turn is due.

    A group that is served falls due later by what it got divided by its weight, and time passes for all by what was
    given divided by all weights. One that comes to work is due now, but never sooner than its last service allows. So a
    debt is measured by the group's own weight, whoever comes and goes meanwhile; no stream of newcomers stands still in
    time before those who wait; and groups without work are forgotten when they are due.
    """

    __slots__ = ("_due", "_reached")

    def __init__(self) -> None:
        self._reached = 0.0
        self._due: dict[str, float] = {}

    def due(self, group: str) -> float:
        """Smaller is sooner."""
        return self._due.setdefault(group, self._reached)

    def begin(self, group: str, weight: float, all_weights: float) -> None:
        """A task of ``group`` starts because it is its turn; ``all_weights`` are those of all groups that have work."""
        at = self.due(group)
        # Who could not take its turns while it was at its limit does not make up for them afterwards.
        self._due[group] = max(at, self._reached - _MOST_CREDIT_MS / weight) + LEAST_MS / weight
        self._reached = max(self._reached + LEAST_MS / max(all_weights, weight), at)

    def charge(self, group: str, weight: float, all_weights: float, ms: float) -> None:
        """Count service that was no turn: a start past all shares, or what a task held beyond its start."""
        self._due[group] = self.due(group) + ms / weight
        self._reached += ms / max(all_weights, weight)

    def forget_idle(self, working: Container[str]) -> None:
        """Groups without work are remembered only while they have had more than their part."""
        if len(self._due) > _MOST_REMEMBERED:
            self._due = {group: at for group, at in self._due.items() if at > self._reached or group in working}


class Ring:
    """The groups that have work, each with the number of its last turn; the smallest is next.

    A group that comes to work joins behind all others, so that coming and going gains nothing and delays nobody.
    """

    __slots__ = ("_last", "_turn")

    def __init__(self) -> None:
        self._turn = 0
        self._last: dict[str, int] = {}

    def last_turn(self, group: str) -> int:
        if group not in self._last:
            self.had_turn(group)
        return self._last[group]

    def had_turn(self, group: str) -> None:
        self._turn += 1
        self._last[group] = self._turn

    def leave(self, group: str) -> None:
        self._last.pop(group, None)
