"""The waiting tasks of a simulated queue, by lane: they take the place of the store.

A simulated front reads the first places of a lane from here, as a dispatcher reads them from the store. The lanes that
a simulation begins with are shared by all its samples and never changed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence

from taskmill.model.task import Lane, Place


class _Rest:
    """The waiting places of one lane: those of the beginning from ``at`` on, and those that came later."""

    __slots__ = ("added", "at", "beginning")

    def __init__(self, beginning: Sequence[Place]) -> None:
        self.beginning = beginning
        self.at = 0
        self.added: list[Place] = []


class Lanes:
    """The waiting places of all lanes, in order."""

    def __init__(self, beginning: Mapping[Lane, Sequence[Place]]) -> None:
        self._lanes = {lane: _Rest(places) for lane, places in beginning.items()}
        self._gone: set[int] = set()
        """Tasks of the beginning that no longer wait in their first places."""
        self._open: Lane | None = None
        """The lane that was found last by :meth:`may_start`; mostly it is the answer again."""

    def names(self) -> list[Lane]:
        return list(self._lanes)

    def add(self, lane: Lane, place: Place) -> None:
        if lane not in self._lanes:
            self._lanes[lane] = _Rest(())
        insort(self._lanes[lane].added, place)

    def remove(self, lane: Lane, place: Place) -> None:
        """Remove a task that starts or ends."""
        added = self._lanes[lane].added
        at = bisect_left(added, place) if added else 0
        if at < len(added) and added[at].id == place.id:
            del added[at]
        else:
            self._gone.add(place.id)

    def has(self, lane: Lane, place: Place) -> bool:
        """True if a task waits in this place."""
        rest = self._lanes.get(lane)
        if rest is None:
            return False
        is_first = place.id not in self._gone and place in rest.beginning[bisect_left(rest.beginning, place) :][:1]
        return is_first or place in rest.added

    def first(self, lane: Lane, most: int) -> list[Place]:
        """Return the first places of a lane, at most ``most``."""
        rest = self._lanes.get(lane)
        if rest is None:
            return []
        beginning, gone = rest.beginning, self._gone
        at, end = rest.at, len(beginning)
        while at < end and beginning[at].id in gone:
            at += 1
        rest.at = at
        found: list[Place] = []
        while at < end and len(found) < most:
            if beginning[at].id not in gone:
                found.append(beginning[at])
            at += 1
        if rest.added:
            found = sorted([*found, *rest.added[:most]])[:most]
        return found

    def may_start(self, is_open: Callable[[Lane], bool]) -> bool:
        """True if a task of the beginning waits in a lane that is open."""
        if self._open is not None and is_open(self._open) and self._has_first(self._open):
            return True
        self._open = next((lane for lane in self._lanes if is_open(lane) and self._has_first(lane)), None)
        return self._open is not None

    def _has_first(self, lane: Lane) -> bool:
        """True if a task of the beginning waits in this lane; new occurrences have negative ids."""
        rest = self._lanes.get(lane)
        if rest is None:
            return False
        return any(rest.beginning[at].id not in self._gone for at in range(rest.at, len(rest.beginning))) or any(
            place.id > 0 for place in rest.added
        )

    def take_all(self, lane: Lane) -> list[Place]:
        """Remove and return all places of a lane."""
        rest = self._lanes.pop(lane)
        found = sorted([*(place for place in rest.beginning[rest.at :] if place.id not in self._gone), *rest.added])
        self._gone.difference_update(place.id for place in found)
        return found
