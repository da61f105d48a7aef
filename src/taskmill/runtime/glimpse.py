"""A glimpse of the queue in memory; the truth is on disk.

For each lane it holds the first few hundred places. Claiming re-checks every row, so a stale place is harmless. A
missing one is not: a lane is *complete* only while every waiting row of it is known, and whoever cannot be sure says so
with :meth:`Glimpse.doubt`, which makes the lane be read again. Cost per task therefore does not grow with the backlog,
and memory stays flat.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping

from taskmill.model.stages import Lane, Place
from taskmill.policy.ranking import LARGEST_FRONT, front_size

_NO_LANES: Mapping[Lane, LaneGlimpse] = {}


class LaneGlimpse:
    """The known front of one lane, in order."""

    __slots__ = ("complete", "low_water", "places")

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.complete = False
        self.low_water = LARGEST_FRONT // 4
        """Fewer places than this, and more on disk: read again."""

    @property
    def needs_reading(self) -> bool:
        return not self.complete and len(self.places) < self.low_water

    @property
    def is_over(self) -> bool:
        """Nothing waits here, for certain."""
        return self.complete and not self.places

    def add(self, place: Place, most: int) -> None:
        """A task has begun to wait; no more than ``most`` are kept in sight."""
        places = self.places
        if not places or place > places[-1]:
            # Beyond the known front; it may only be kept if nothing unknown lies between.
            if self.complete:
                places.append(place)
        elif places[bisect_left(places, place)] != place:
            insort(places, place)
        if len(places) > most:
            del places[most // 2 :]
            self.complete = False


class Glimpse:
    """The fronts of all lanes, by group."""

    def __init__(self) -> None:
        self.lane_count = 0
        self.groups: dict[str, dict[Lane, LaneGlimpse]] = {}
        self.touched: dict[str, set[Lane] | None] = {}
        """Groups of which something has changed since whoever picks has looked, and in which lanes (``None``: any)."""
        self.has_budgets = False
        """Whether tasks with budgets came into sight, or went out of it, since whoever picks has looked."""
        self._unread: set[Lane] = set()

    def add(self, lane: Lane, place: Place) -> None:
        """A task has begun to wait."""
        lanes = self.groups.setdefault(lane.group, {})
        known = lanes.get(lane)
        if known is None:
            # Nothing waited here before, or the lane would be known.
            known = self._known(lane)
            known.complete = True
        known.add(place, 4 * front_size(self.lane_count))
        self.has_budgets = self.has_budgets or place.io is not None
        self._noted(lane, known)

    def read(self, fronts: Mapping[Lane, list[Place]], size: int) -> None:
        """What the store has just said about some lanes: their first places, at most ``size`` of each."""
        for lane, places in fronts.items():
            known = self._known(lane)
            self._note_budgets(known.places)
            self._note_budgets(places)
            known.places = places
            known.complete = len(places) < size
            known.low_water = max(size // 4, 1)
            self._noted(lane, known)

    def survey(self, lanes: Iterable[Lane]) -> None:
        """These are all lanes that have waiting tasks."""
        alive = set(lanes)
        for known in list(self.groups.values()):
            for lane in [lane for lane in known if lane not in alive]:
                self._note_budgets(known[lane].places)
                self._forget(lane)

    def doubt(self, lanes: Iterable[Lane]) -> None:
        """Something may wait there that is not known."""
        for lane in lanes:
            known = self._known(lane)
            self._note_budgets(known.places)
            known.places.clear()
            known.complete = False
            self._noted(lane, known)

    def take(self, lane: Lane, place: Place) -> None:
        """The task at ``place`` is about to start."""
        known = self.groups[lane.group][lane]
        at = 0 if known.places[0] is place else known.places.index(place)
        del known.places[at]
        self._noted(lane, known)

    def drop(self, lane: Lane, place: Place) -> None:
        """The task at ``place`` has started, though another was meant."""
        known = self.of(lane.group).get(lane)
        at = 0 if known is None else bisect_left(known.places, place)
        if known is not None and at < len(known.places) and known.places[at].id == place.id:
            del known.places[at]
            self._noted(lane, known)

    def take_front(self, lane: Lane, most: int) -> list[Place]:
        """The first tasks of a lane are about to start."""
        known = self.groups[lane.group][lane]
        taken = known.places[:most]
        del known.places[:most]
        self._noted(lane, known)
        return taken

    def of(self, group: str) -> Mapping[Lane, LaneGlimpse]:
        return self.groups.get(group, _NO_LANES)

    def unread(self) -> list[Lane]:
        """The lanes to read again."""
        return [lane for lane in self._unread if lane in self.groups.get(lane.group, _NO_LANES)]

    def touch(self, groups: Iterable[str]) -> None:
        """Anything may have changed in these groups."""
        for group in groups:
            self.touched[group] = None

    @property
    def is_empty(self) -> bool:
        """Nothing waits, for certain."""
        return not self.groups

    def _note_budgets(self, places: Iterable[Place]) -> None:
        self.has_budgets = self.has_budgets or any(place.io is not None for place in places)

    def _touch_lane(self, lane: Lane) -> None:
        lanes = self.touched.setdefault(lane.group, set())
        if lanes is not None:
            lanes.add(lane)

    def _known(self, lane: Lane) -> LaneGlimpse:
        lanes = self.groups.setdefault(lane.group, {})
        if lane not in lanes:
            lanes[lane] = LaneGlimpse()
            self.lane_count += 1
        return lanes[lane]

    def _noted(self, lane: Lane, known: LaneGlimpse) -> None:
        self._touch_lane(lane)
        if known.is_over:
            self._forget(lane)
        elif known.needs_reading:
            self._unread.add(lane)
        else:
            self._unread.discard(lane)

    def _forget(self, lane: Lane) -> None:
        lanes = self.groups[lane.group]
        del lanes[lane]
        self.lane_count -= 1
        if not lanes:
            del self.groups[lane.group]
        self._unread.discard(lane)
        self._touch_lane(lane)
