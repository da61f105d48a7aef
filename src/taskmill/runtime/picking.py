"""Picking: which of the tasks in sight start next.

One entry per group stands in a heap: that of the task it would start. Where slots are shared, the group that is
furthest behind its share comes first; else the most urgent task does, and among equals the groups take turns. Entries
are made anew only for groups of which something has changed, and inside a group only what has changed is looked at
(``lane_heads.py``), so the cost of a start grows neither with the backlog nor with the number of groups or task types.

What holds a group back (its cap, its rate, a pause) keeps it out of the heap and nobody else; what holds a task type or
a domain back makes its lanes be passed over (docs/decisions/0015).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple

from taskmill.model.cluster import Claim
from taskmill.model.controls import EVERYTHING, Bucket, Scope
from taskmill.model.stages import Lane
from taskmill.policy.aging import is_urgent
from taskmill.policy.preemption import Pressing
from taskmill.policy.rules import Rules
from taskmill.policy.turns import Ring
from taskmill.runtime.candidates import Candidate, Pick
from taskmill.runtime.courtesy import Courtesy
from taskmill.runtime.gates import Gates, scopes_of
from taskmill.runtime.glimpse import Glimpse
from taskmill.runtime.lane_heads import LaneHeads
from taskmill.runtime.load import Load
from taskmill.runtime.meters import Meters
from taskmill.runtime.share_keeper import ShareKeeper

_LAST = (1 << 62, 0, 0)


class _Entry(NamedTuple):
    key: tuple[float | int, ...]
    version: int
    group: str


class Picker:
    """Chooses what starts in free slots, by the rules that hold now."""

    def __init__(self, glimpse: Glimpse, load: Load, knows: Callable[[str], bool], courtesy: Courtesy) -> None:
        self._glimpse = glimpse
        self._load = load
        self.courtesy = courtesy
        self.gates = Gates(load, knows)
        self._heads = LaneHeads(glimpse, self.gates, courtesy)
        self.throttled: set[str] = set()
        """Groups with tasks that wait for the pressure to fall."""
        self.shares = ShareKeeper()
        self._ring = Ring()
        self._candidates: dict[str, Candidate] = {}
        self._versions: dict[str, int] = {}
        self._numbers = count()
        self._queue: list[_Entry] = []
        self._urgent: list[_Entry] = []
        self._pressing: set[str] = set()
        """Groups that would start a task which may pass over shares and preempt."""
        self._slots = self._shared_slots = 0
        self.looked: set[str] | None = None
        """Groups that were looked at since whoever counts holds has asked; ``None``: nobody does."""

    @property
    def rules(self) -> Rules:
        return self.gates.rules

    @property
    def meters(self) -> Meters:
        return self.gates.meters

    @property
    def next_moment(self) -> int | None:
        """When something changes by itself."""
        return self.gates.next_moment

    def candidate(self, group: str) -> Candidate | None:
        """The task that a group would start next, if it may start any."""
        return self._candidates.get(group)

    # What others tell

    def rule(self, rules: Rules, buckets: Iterable[tuple[Scope, Bucket]], now: int) -> None:
        """From now on these rules hold."""
        is_first = self.rules.controls.version < 0
        weights_changed = not is_first and not self.rules.shares_like(rules)
        self.gates.rule(rules, buckets, now)
        self.shares.rules_changed(shared=rules.is_shared, weights_changed=weights_changed)
        self.look_at_all()

    def look_at_all(self) -> None:
        """Anything may have changed, also who may start if there is room for its IO."""
        self._load.io_eased = True
        held = {*self._load.groups, *self._load.elsewhere.groups}
        self._glimpse.touch({*self._glimpse.groups, *held, *self._versions})

    def ended(self, group: str, held_ms: int) -> None:
        """A task of ``group`` has given its slot back after ``held_ms``."""
        self.shares.ended(group, held_ms)

    def turn_over(self, taken: Iterable[tuple[Scope, Bucket]], *, all_started: bool) -> None:
        """The turn is committed or has failed, with these permits taken."""
        self._glimpse.touch(self.gates.turn_over(taken, all_started=all_started))

    # Asking

    def pick(self, slots: int, free: int, now: int) -> list[Pick]:
        """Take the next tasks to start out of the glimpse, at most ``free``, in their order."""
        if self.courtesy.is_watching:
            self._reopen()
        self.settle(slots, now)
        picked: list[Pick] = []
        if free <= 0 or self.rules.is_paused(EVERYTHING):
            return picked
        if (lane := self._only_lane()) is not None:
            return self._take_front(lane, free, now)
        while len(picked) < free and (chosen := self._next(now)) is not None:
            group, by_turn = chosen
            candidate = self._candidate_now(group, now)
            if candidate is None or not self.courtesy.admits(candidate.lane.type, candidate.place.io):
                # Others of its group may fit, or have no budget.
                self._glimpse.touch([group])
                self.settle(slots, now)
                continue
            picked.append(self._take(group, candidate, by_turn=by_turn))
            if self._is_unread(candidate.lane) and not self.rules.is_shared:
                # More of this lane waits on disk, perhaps more urgent than the rest: read before going on.
                break
            self.settle(slots, now)
        return picked

    def _reopen(self) -> None:
        """What was held because of its IO may fit now."""
        self.courtesy.arrived, self._glimpse.has_budgets = self._glimpse.has_budgets, False
        self._glimpse.touch(self.courtesy.reopen())

    @property
    def is_held_by_machine(self) -> bool:
        """Whether something waits for the machine alone; :meth:`settle` first."""
        return bool(self.throttled or self.courtesy.io_held) and not self.rules.is_paused(EVERYTHING)

    @property
    def has_candidates(self) -> bool:
        """Whether anything in sight may start, given a free slot; :meth:`settle` first."""
        return bool(self._candidates) and not self.rules.is_paused(EVERYTHING)

    def pressing(self, now: int, most: int) -> list[Pressing]:
        """Waiting tasks that could start and may preempt others, at most ``most``."""
        if self.rules.is_paused(EVERYTHING):
            return []
        line = self.rules.declared.preempt_at
        waiting = sorted(
            (effective, place.queued_at, place.place_id, place.id, lane, place.io)
            for group in self._pressing
            for lane, known in self._glimpse.of(group).items()
            if self.gates.is_open(lane, now)
            for place in known.places[:most]
            if (effective := self._heads.effective(lane, place, now)) <= line
            if not self.courtesy.holds_back(effective) and self.courtesy.may_pass(lane.type, place.io)
        )
        room: dict[Scope, int] = {}
        found: list[Pressing] = []
        for effective, _, _, id, lane, io in waiting:
            for scope in (scopes := scopes_of(lane)):
                if scope not in room:
                    room[scope] = self.gates.room_in(scope)
            if len(found) < most and all(room[scope] > 0 for scope in scopes):
                found.append(Pressing(effective, self.courtesy.budget_of(lane.type, io), id, lane.type))
                for scope in scopes:
                    room[scope] -= 1
        return found

    # Keeping the entries true

    def settle(self, slots: int, now: int) -> None:
        """Look again at the groups of which something has changed."""
        self.meters.at(now)
        self._glimpse.touch(self.gates.changed(now))
        for group in self._load.take_eased_groups():
            self._glimpse.touched.setdefault(group, set())
        touched = self._glimpse.touched
        self._slots = slots
        # Groups share the slots of all nodes.
        if (slots := slots + self._load.elsewhere.slots) != self._shared_slots:
            self._shared_slots = slots
            self.shares.is_stale = True
        if not touched and not (self.rules.is_shared and self.shares.is_stale):
            return
        self._glimpse.touched = {}
        for group, lanes in touched.items():
            self._look_at(group, lanes, now)
        groups = set(touched)
        if self.rules.is_shared and self.shares.reckon(slots):
            groups |= set(self._versions)
            self._queue.clear()
            self._urgent.clear()
        for group in self._in_order(groups):
            self._enter(group)
        if self.looked is not None:
            self.looked |= groups
        if len(self._queue) + len(self._urgent) > 4 * len(self._versions) + 64:
            self._drop_stale()

    def _look_at(self, group: str, lanes: Iterable[Lane] | None, now: int) -> None:
        """Find the task that a group would start next; only ``lanes`` of it have changed, or anything (``None``)."""
        self._versions[group] = next(self._numbers)
        running, settings = self._load.in_group(group), self.rules.group(group)
        is_over = not self._glimpse.of(group)
        best, waiting = self._heads.look(group, lanes, now)
        if self._heads.is_throttled(group):
            self.throttled.add(group)
        else:
            self.throttled.discard(group)
        at_cap = settings.cap is not None and running >= settings.cap
        if best is None or at_cap:
            self._candidates.pop(group, None)
        else:
            self._candidates[group] = best
        if self.rules.is_shared:
            claim = Claim(running, waiting, settings.weight, settings.cap, settings.min_slots)
            self.shares.claims(group, claim if running or waiting else None, drained=is_over)
        if is_over and not running:
            del self._versions[group]
            self._pressing.discard(group)
            self._ring.leave(group)

    def _in_order(self, groups: set[str]) -> Iterable[str]:
        """Groups that come to work in the same moment take their first turns in the order of their tasks."""
        if len(groups) < 2 or self.rules.is_shared:
            return groups
        return sorted(groups, key=lambda group: self._candidates[group][:3] if group in self._candidates else _LAST)

    def _enter(self, group: str) -> None:
        """Put the group where its next task belongs."""
        candidate = self._candidates.get(group)
        self._pressing.discard(group)
        if candidate is None:
            return
        version, effective = self._versions[group], candidate.effective
        if effective <= self.rules.declared.preempt_at:
            self._pressing.add(group)
        if not self.rules.is_shared:
            key = (effective, self._ring.last_turn(group), candidate.queued_at, candidate.place_id)
            heappush(self._queue, _Entry(key, version, group))
            return
        if effective <= self.rules.declared.preempt_at or is_urgent(self.rules.declared.aging, effective):
            heappush(self._urgent, _Entry(candidate[:3], version, group))
        if (key_of_share := self.shares.key(group)) is not None:
            heappush(self._queue, _Entry(key_of_share, version, group))

    def _drop_stale(self) -> None:
        for heap in (self._queue, self._urgent):
            heap[:] = [entry for entry in heap if self._versions.get(entry.group) == entry.version]
            heapify(heap)

    # Taking

    def _next(self, now: int) -> tuple[str, bool] | None:
        """The group whose turn it is, and whether it is by its share."""
        while True:
            heap = self._urgent or self._queue
            if not heap:
                return None
            entry = heap[0]
            if self._versions.get(entry.group) != entry.version:
                heappop(heap)
            elif self.rules.limits_anything and not self.gates.is_open(self._candidates[entry.group].lane, now):
                # Something that it shares with others, such as the cap of its domain, was used up meanwhile.
                self._glimpse.touch([entry.group])
                self.settle(self._slots, now)
            else:
                return entry.group, heap is self._queue

    def _candidate_now(self, group: str, now: int) -> Candidate | None:
        """The task that a group starts when its turn has come; ``None`` if what it had is held by now.

        Nobody looks again at each step of aging that changes nobody's turn; but inside the group one task may have
        overtaken another: where slots are shared any, else one of those whose aging began anew.
        """
        if self._heads.may_have_aged(group, now):
            self._look_at(group, None, now)
        return self._candidates.get(group)

    def _take(self, group: str, candidate: Candidate, *, by_turn: bool) -> Pick:
        lane = candidate.lane
        budget = self.courtesy.budget_of(lane.type, candidate.place.io)
        self._glimpse.take(lane, candidate.place)
        self.gates.take(group, lane.type, budget)
        if self.rules.is_shared:
            self.shares.started(group, by_turn=by_turn)
        else:
            self._ring.had_turn(group)
        return Pick(candidate.place.id, group, lane.type, candidate.effective, lane, candidate.place, budget, by_turn)

    def _is_unread(self, lane: Lane) -> bool:
        known = self._glimpse.of(lane.group).get(lane)
        return known is not None and not known.places

    def _only_lane(self) -> Lane | None:
        """The lane from which everything is taken in order, if there is one: the way of almost every turn."""
        groups = self._glimpse.groups
        if len(groups) != 1 or self.rules.limits_anything or self.courtesy.is_watching:
            return None
        (lanes,) = groups.values()
        if len(lanes) != 1:
            return None
        (lane,) = lanes
        return lane if not lane.renewed and self.gates.knows(lane.type) else None

    def _take_front(self, lane: Lane, free: int, now: int) -> list[Pick]:
        places = self._glimpse.take_front(lane, free)
        for _ in places:
            self._load.begin(lane.group, lane.type)
        group, type = lane.group, lane.type
        return [Pick(place.id, group, type, self._heads.effective(lane, place, now), lane, place) for place in places]
