"""Choose the group that is next, so that sharing is fair over time.

If slots are shared (:mod:`taskmill.policy.shares`), :class:`Service` finds the group that is furthest behind its
portion. Otherwise priority is global, and :class:`Ring` is a round robin over the groups of equally urgent tasks.

Laws: with more groups than slots, each group gets its portion over time, whatever its name; no group with a portion
starves, however many others come and go; no group gains by having been idle.
"""

from __future__ import annotations

from collections.abc import Container

LEAST_MS = 100
"""The charge for a start, in milliseconds of a slot. A task that runs longer is charged the rest when it ends.

So groups with long tasks get no more slot time than groups with short ones. Shorter durations are mostly noise, so
shorter tasks all cost the same.
"""
_MOST_REMEMBERED = 64
_MOST_CREDIT_MS = 10 * LEAST_MS


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

    def begin(self, group: str, weight: float, all_weights: float) -> None:
        """Charge the start of a task whose group had its turn; ``all_weights`` sums the groups that have work."""
        at = self.due(group)
        # Bound the credit: a group that missed its turns while it was at its limit must not make up for all of them.
        self._due[group] = max(at, self._reached - _MOST_CREDIT_MS / weight) + LEAST_MS / weight
        self._reached = max(self._reached + LEAST_MS / max(all_weights, weight), at)

    def charge(self, group: str, weight: float, all_weights: float, ms: float) -> None:
        """Charge other service: a start beyond the shares, or slot time beyond the charge for the start."""
        self._due[group] = self.due(group) + ms / weight
        self._reached += ms / max(all_weights, weight)

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

    def had_turn(self, group: str) -> None:
        self._turn += 1
        self._last[group] = self._turn

    def leave(self, group: str) -> None:
        self._last.pop(group, None)
