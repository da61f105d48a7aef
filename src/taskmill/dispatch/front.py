"""The front of the queue, in memory. The whole queue is on disk.

The front holds the first few hundred places of each lane, so the cost per task and the memory do not grow with the
backlog. A stale place is harmless, because claiming re-checks every row. A missing place would be a task that never
starts. So a lane counts as *complete* only while all its waiting rows are known; if that is uncertain,
:meth:`Front.doubt` causes the lane to be read again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from operator import attrgetter

from taskmill.model.task import Described, Lane, Place
from taskmill.policy.aging import LARGEST_FRONT, front_size

_NO_LANES: Mapping[Lane, LaneFront] = {}


class LaneFront:
    """The known places of one lane, in order."""

    __slots__ = ("complete", "low_water", "places")

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.complete = False
        self.low_water = LARGEST_FRONT // 4
        """With fewer places than this and more on disk, the lane is read again."""

    @property
    def needs_reading(self) -> bool:
        return not self.complete and len(self.places) < self.low_water

    @property
    def is_over(self) -> bool:
        """True if it is certain that no task waits in this lane."""
        return self.complete and not self.places

    def add(self, place: Place, most: int) -> None:
        """Add a task that has begun to wait; keep at most ``most`` places."""
        places = self.places
        if not places or places[-1] < place:
            # Beyond the known front: keep it only if nothing unknown lies between.
            if self.complete:
                places.append(place)
        elif places[bisect_left(places, place)] != place:
            insort(places, place)
        if len(places) > most:
            del places[most // 2 :]
            self.complete = False


class Front:
    """The fronts of all lanes, by group."""

    def __init__(self) -> None:
        self.lane_count = 0
        self.groups: dict[str, dict[Lane, LaneFront]] = {}
        self.touched: dict[str, set[Lane] | None] = {}
        """Groups that changed since the picker last looked, and in which lanes (None: in any)."""
        self.has_budgets = False
        """True if tasks with IO budgets entered or left the front since the picker last looked."""
        self._unread: dict[Lane, None] = {}
        """A set in the order of insertion, so that simulations are the same in every process."""

    def add(self, lane: Lane, place: Place) -> None:
        """Add a task that has begun to wait."""
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
        """Replace the places of some lanes by those read from the store: the first ones, at most ``size`` of each."""
        for lane, places in fronts.items():
            known = self._known(lane)
            self._note_budgets([*known.places, *places])
            known.places = places
            known.complete = len(places) < size
            known.low_water = max(size // 4, 1)
            self._noted(lane, known)

    def survey(self, lanes: Iterable[Lane]) -> None:
        """Forget every lane that is not among ``lanes``, the lanes with waiting tasks in the store."""
        alive = set(lanes)
        for known in list(self.groups.values()):
            for lane in [lane for lane in known if lane not in alive]:
                self._note_budgets(known[lane].places)
                self._forget(lane)

    def doubt(self, lanes: Iterable[Lane]) -> None:
        """Mark lanes to be read again, because unknown tasks may wait in them."""
        for lane in lanes:
            known = self._known(lane)
            self._note_budgets(known.places)
            known.places.clear()
            known.complete = False
            self._noted(lane, known)

    def take(self, lane: Lane, place: Place) -> None:
        """Remove a task that is about to start."""
        known = self.groups[lane.group][lane]
        at = 0 if known.places[0] is place else known.places.index(place)
        del known.places[at]
        self._noted(lane, known)

    def drop(self, lane: Lane, place: Place) -> None:
        """Remove a task that has started instead of the picked one, if it is known."""
        known = self.of(lane.group).get(lane)
        at = 0 if known is None else bisect_left(known.places, place)
        if known is not None and at < len(known.places) and known.places[at].id == place.id:
            del known.places[at]
            self._noted(lane, known)

    def remove(self, task: Described) -> None:
        """Remove a task that has ended, if it was waiting and is known."""
        lanes = self.of(task.group)
        for renewed in (False, True) if lanes else ():
            lane = Lane(task.group, task.urgency, task.type, renewed)
            known = lanes.get(lane)
            if known is None:
                continue
            # Places are in the order of queued_at, which is when aging began, unless it was restarted.
            first = 0 if renewed else bisect_left(known.places, task.aged_from, key=attrgetter("queued_at"))
            for at in range(first, len(known.places)):
                if known.places[at].id == task.id:
                    self._note_budgets([known.places.pop(at)])
                    self._noted(lane, known)
                    return
                if not renewed and known.places[at].queued_at > task.aged_from:
                    break

    def take_first(self, lane: Lane, most: int) -> list[Place]:
        """Remove and return the first places of a lane, whose tasks are about to start."""
        known = self.groups[lane.group][lane]
        taken = known.places[:most]
        del known.places[:most]
        self._noted(lane, known)
        return taken

    def of(self, group: str) -> Mapping[Lane, LaneFront]:
        return self.groups.get(group, _NO_LANES)

    def unread(self) -> list[Lane]:
        """Return the lanes to read again."""
        return [lane for lane in self._unread if lane in self.groups.get(lane.group, _NO_LANES)]

    @property
    def has_unknown_lanes(self) -> bool:
        """True if some lane has waiting tasks, but none of them is in memory."""
        return any(not self.groups[lane.group][lane].places for lane in self.unread())

    def touch(self, groups: Iterable[str]) -> None:
        """Mark all lanes of some groups as changed, so that the picker looks at them."""
        for group in groups:
            self.touched[group] = None

    @property
    def is_empty(self) -> bool:
        """True if it is certain that no task waits."""
        return not self.groups

    def _note_budgets(self, places: Iterable[Place]) -> None:
        for place in places:
            if place.io is not None:
                self.has_budgets = True

    def _touch_lane(self, lane: Lane) -> None:
        lanes = self.touched.setdefault(lane.group, set())
        if lanes is not None:
            lanes.add(lane)

    def _known(self, lane: Lane) -> LaneFront:
        lanes = self.groups.setdefault(lane.group, {})
        if lane not in lanes:
            lanes[lane] = LaneFront()
            self.lane_count += 1
        return lanes[lane]

    def _noted(self, lane: Lane, known: LaneFront) -> None:
        self._touch_lane(lane)
        if known.is_over:
            self._forget(lane)
        elif known.needs_reading:
            self._unread[lane] = None
        else:
            self._unread.pop(lane, None)

    def _forget(self, lane: Lane) -> None:
        lanes = self.groups[lane.group]
        del lanes[lane]
        self.lane_count -= 1
        if not lanes:
            del self.groups[lane.group]
        self._unread.pop(lane, None)
        self._touch_lane(lane)
