"""A glimpse of the queue in memory; the truth is on disk.

For each lane (group, priority) the first few hundred places are known. Claiming re-checks every row, so a stale place
is harmless. A missing one is not: a lane is *complete* only while every waiting row of it is known, and whoever
cannot be sure says so with :meth:`Glimpse.doubt`, which makes the lane be read again. Cost per task therefore does not
grow with the backlog, and memory stays flat.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping

from taskmill.model.stages import Lane, Place

LOW_WATER = 128
"""Read a lane again when fewer places than this are left and there are more on disk."""
MOST_PLACES = 2048


class LaneGlimpse:
    """The known front of one lane, in order."""

    __slots__ = ("complete", "places")

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.complete = False

    @property
    def needs_reading(self) -> bool:
        return not self.complete and len(self.places) < LOW_WATER

    def add(self, place: Place) -> None:
        places = self.places
        if not places or place > places[-1]:
            # Beyond the known front; it may only be kept if nothing unknown lies between.
            if self.complete:
                places.append(place)
        elif places[bisect_left(places, place)] != place:
            insort(places, place)
        if len(places) > MOST_PLACES:
            del places[MOST_PLACES // 2 :]
            self.complete = False


class Glimpse:
    """The fronts of all lanes."""

    def __init__(self, front_size: int) -> None:
        self._front_size = front_size
        self.lanes: dict[Lane, LaneGlimpse] = {}

    def add(self, lane: Lane, place: Place) -> None:
        """A task has begun to wait."""
        known = self.lanes.get(lane)
        if known is None:
            # Nothing waited here before, or the lane would be known.
            known = self.lanes[lane] = LaneGlimpse()
            known.complete = True
        known.add(place)

    def read(self, fronts: Mapping[Lane, list[Place]]) -> None:
        """What the store has just said about some lanes."""
        for lane, places in fronts.items():
            known = self.lanes.setdefault(lane, LaneGlimpse())
            known.places = places
            known.complete = len(places) < self._front_size

    def survey(self, lanes: Iterable[Lane]) -> None:
        """These are all lanes that have waiting tasks."""
        alive = set(lanes)
        for lane in [lane for lane in self.lanes if lane not in alive]:
            del self.lanes[lane]

    def doubt(self, lanes: Iterable[Lane]) -> None:
        """Something may wait there that is not known."""
        for lane in lanes:
            known = self.lanes.setdefault(lane, LaneGlimpse())
            known.places.clear()
            known.complete = False

    def take(self, lane: Lane) -> Place:
        """Take the first place of a lane that has one."""
        return self.lanes[lane].places.pop(0)

    def unread(self) -> list[Lane]:
        return [lane for lane, known in self.lanes.items() if known.needs_reading]

    def heads(self) -> list[tuple[Lane, Place]]:
        """The first place of every lane that has one; lanes that are empty for certain are forgotten."""
        found: list[tuple[Lane, Place]] = []
        empty: list[Lane] = []
        for lane, known in self.lanes.items():
            if known.places:
                found.append((lane, known.places[0]))
            elif known.complete:
                empty.append(lane)
        for lane in empty:
            del self.lanes[lane]
        return found

    @property
    def is_empty(self) -> bool:
        """Nothing waits, for certain."""
        return all(known.complete and not known.places for known in self.lanes.values())
