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


class Service:
    """All service given, and per group the service at which its next turn is due.

    A group that is served falls due later by what it got divided by its portion. One that comes to work is due at once,
    but never sooner than its last service allows: so groups without work are forgotten when their time has passed.
    """

    __slots__ = ("_due", "_served")

    def __init__(self) -> None:
        self._served = 0.0
        self._due: dict[str, float] = {}

    def due(self, group: str) -> float:
        """Smaller is sooner."""
        return self._due.setdefault(group, self._served)

    def begin(self, group: str, portion: float, *, by_turn: bool) -> None:
        """A task of ``group`` starts; ``by_turn`` if this was its turn, and not its minimum or its urgency."""
        at = self.due(group)
        # The service given never lags behind the group that is due first, or newcomers would be due before all.
        self._served = max(self._served + LEAST_MS, at) if by_turn else self._served + LEAST_MS
        if portion:
            self._due[group] = at + LEAST_MS / portion

    def end(self, group: str, portion: float, held_ms: int) -> None:
        """A task of ``group`` has given its slot back."""
        more = held_ms - LEAST_MS
        if more > 0 and portion:
            self._due[group] = self.due(group) + more / portion
            self._served += more

    def forget_idle(self, working: Container[str]) -> None:
        """Groups without work are remembered only while they have had more than their portion."""
        if len(self._due) > _MOST_REMEMBERED:
            self._due = {group: at for group, at in self._due.items() if at > self._served or group in working}


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
