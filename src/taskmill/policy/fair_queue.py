"""Choose the group that is next, so that sharing is fair over time.

If slots are shared (:mod:`taskmill.policy.shares`), :class:`VirtualTime` finds the group that is furthest behind its
portion. Otherwise priority is global, and :class:`RoundRobin` lets the groups of equally urgent tasks take turns.

Laws: with more groups than slots, each group gets its portion over time, whatever its name; no group with a portion
starves, however many others come and go; no group gains by having been idle.
"""

from collections.abc import Container
from typing import NamedTuple

LEAST_MS = 100
"""The charge for a start, in milliseconds of a slot. A task that runs longer is charged the rest when it ends.

So groups with long tasks get no more slot time than groups with short ones. Shorter durations are mostly noise, so
shorter tasks all cost the same.
"""
_MOST_REMEMBERED = 64
_MOST_CREDIT_MS = 10 * LEAST_MS


class Charge(NamedTuple):
    """By how much a service has moved the due time of its group, and the virtual time."""

    due: float = 0.0
    reached: float = 0.0


class VirtualTime:
    """Fair queueing in virtual time: the time at which the next turn of each group is due.

    Serving a group moves its due time later by the service divided by its weight, and moves the virtual time forward by
    the service divided by the sum of all weights. A group that gets work is due now, but not before its last service
    allows. So a debt depends on the group's own weight only, whichever groups come and go; a stream of new groups
    cannot starve the waiting ones; and groups without work can be forgotten once they are due.
    """

    __slots__ = ("_due", "_reached")

    def __init__(self) -> None:
        self._reached = 0.0
        self._due: dict[str, float] = {}

    def due(self, group: str) -> float:
        """Return the virtual time at which the next turn of a group is due; smaller is sooner."""
        return self._due.setdefault(group, self._reached)

    def begin(self, group: str, weight: float, all_weights: float) -> Charge:
        """Charge the start of a task whose group had its turn; ``all_weights`` sums the groups that have work."""
        at, reached = self.due(group), self._reached
        # Bound the credit: a group that missed its turns while it was at its limit must not make up for all of them.
        self._due[group] = max(at, reached - _MOST_CREDIT_MS / weight) + LEAST_MS / weight
        self._reached = max(reached + LEAST_MS / max(all_weights, weight), at)
        return Charge(self._due[group] - at, self._reached - reached)

    def charge(self, group: str, weight: float, all_weights: float, ms: float) -> Charge:
        """Charge other service: a start beyond the shares, or slot time beyond the charge for the start."""
        made = Charge(ms / weight, ms / max(all_weights, weight))
        self._due[group] = self.due(group) + made.due
        self._reached += made.reached
        return made

    def take_back(self, group: str, charge: Charge) -> None:
        """Take back the charge for a task that did not start."""
        self._due[group] = self.due(group) - charge.due
        self._reached -= charge.reached

    def forget_idle(self, working: Container[str]) -> None:
        """Forget groups without work, except those that have had more than their portion."""
        if len(self._due) > _MOST_REMEMBERED:
            self._due = {group: at for group, at in self._due.items() if at > self._reached or group in working}


class RoundRobin:
    """A round robin over the groups that have work: the group with the smallest number of its last turn is next.

    A group that gets work joins behind all others, so that coming and going gains nothing and delays no other group.
    """

    __slots__ = ("_last", "_turn")

    def __init__(self) -> None:
        self._turn = 0
        self._last: dict[str, int] = {}

    def last_turn(self, group: str) -> int:
        if group not in self._last:
            self.had_turn(group)
        return self._last[group]

    def had_turn(self, group: str) -> int:
        """Note a turn of a group and return its number."""
        self._turn += 1
        self._last[group] = self._turn
        return self._turn

    def take_back(self, group: str, turn: int, before: int) -> None:
        """Take back a turn in which no task started, unless the group has had another since ``before``."""
        if self._last.get(group) == turn:
            self._last[group] = before

    def leave(self, group: str) -> None:
        self._last.pop(group, None)
