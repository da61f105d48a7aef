"""The heads of lanes: which task each lane of a group would start next, and which of them is first.

A group may have thousands of lanes (each cron task has a type of its own), so a start must not cost a look at all of
them. What a lane would start is kept until something about that lane changes; when anything else may have changed (the
rules, a gate, the pressure, a step of aging), the whole group is looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from taskmill.model.controls import Scope, ScopeKind
from taskmill.model.stages import Lane, Place
from taskmill.policy.aging import effective_priority, next_step_ms, wait_until_ms
from taskmill.policy.rules import Rules
from taskmill.runtime.candidates import Candidate
from taskmill.runtime.courtesy import Courtesy
from taskmill.runtime.gates import MANY, Gates
from taskmill.runtime.glimpse import Glimpse, LaneGlimpse


class _Heads:
    """What the lanes of one group would start."""

    __slots__ = ("by_lane", "gated", "in_order", "next_step", "renewed", "throttled", "waiting")

    def __init__(self) -> None:
        self.by_lane: dict[Lane, tuple[Candidate, int]] = {}
        """With how many tasks are known to wait in the lane."""
        self.in_order: list[Candidate] = []
        """A heap; those that are no longer heads of their lanes are dropped when they come up."""
        self.waiting = 0
        self.throttled: set[Lane] = set()
        self.gated = False
        """Whether a domain or a type holds some of them back now and then."""
        self.next_step: int | None = None
        """When one of them grows more urgent."""
        self.renewed = False
        """Whether aging began anew for some that wait behind them."""

    def put(self, lane: Lane, candidate: Candidate | None, waiting: int) -> None:
        known = self.by_lane.get(lane)
        if known is not None:
            self.waiting -= known[1]
        if candidate is None:
            if known is not None:
                del self.by_lane[lane]
            return
        self.by_lane[lane] = candidate, waiting
        self.waiting += waiting
        if known is None or known[0] != candidate:
            heappush(self.in_order, candidate)
            if len(self.in_order) > 4 * len(self.by_lane) + 16:
                self.in_order = [candidate for candidate, _ in self.by_lane.values()]
                heapify(self.in_order)

    def first(self) -> Candidate | None:
        while self.in_order:
            candidate = self.in_order[0]
            known = self.by_lane.get(candidate.lane)
            if known is not None and known[0] == candidate:
                return candidate
            heappop(self.in_order)
        return None


class LaneHeads:
    """Knows, for each group, the first of what its lanes would start."""

    def __init__(self, glimpse: Glimpse, gates: Gates, courtesy: Courtesy) -> None:
        self._glimpse = glimpse
        self._gates = gates
        self._courtesy = courtesy
        self._groups: dict[str, _Heads] = {}

    @property
    def _rules(self) -> Rules:
        return self._gates.rules

    def look(self, group: str, lanes: Iterable[Lane] | None, now: int) -> tuple[Candidate | None, int]:
        """What a group would start, and how many of its tasks wait; only ``lanes`` have changed, or all (``None``)."""
        known = self._glimpse.of(group)
        if not known or not (permits := self._gates.permits_of_group(group, now)):
            self._groups.pop(group, None)
            return None, 0
        heads = self._groups.get(group)
        if lanes is None or heads is None or heads.gated or self._courtesy.holds_io:
            heads = self._groups[group] = _Heads()
            lanes = known
        for lane in lanes:
            self._look_at(heads, lane, known.get(lane), now)
        return heads.first(), min(heads.waiting, permits)

    def may_have_aged(self, group: str, now: int) -> bool:
        """Whether the heads of a group may stand in another order by now."""
        heads = self._groups.get(group)
        if heads is None:
            return False
        return heads.renewed or (heads.next_step is not None and heads.next_step <= now)

    def is_throttled(self, group: str) -> bool:
        """Whether tasks of a group wait for the pressure to fall."""
        heads = self._groups.get(group)
        return heads is not None and bool(heads.throttled)

    def effective(self, lane: Lane, place: Place, now: int) -> int:
        aging = self._rules.declared.aging
        return lane.urgency if aging is None else effective_priority(aging, lane.urgency, now - place.aged_from)

    def _look_at(self, heads: _Heads, lane: Lane, known: LaneGlimpse | None, now: int) -> None:
        heads.throttled.discard(lane)
        heads.gated = heads.gated or self._rules.gate(lane.type) is not None
        candidate: Candidate | None = None
        if known is not None and known.places and self._gates.is_open(lane, now):
            candidate = self._head(heads, lane, known, now)
            if candidate is not None and self._courtesy.holds_back(candidate.effective):
                heads.throttled.add(lane)
                candidate = None
        heads.put(lane, candidate, len(known.places) if known is not None and known.complete else MANY)

    def _head(self, heads: _Heads, lane: Lane, known: LaneGlimpse, now: int) -> Candidate | None:
        """The task of a lane that is next. Inside a lane that is the oldest, unless aging began anew for some."""
        passing: Iterable[Place] = known.places
        if self._courtesy.holds_io:
            passing = (place for place in known.places if self._courtesy.may_pass(lane.type, place.io))
        first = next(iter(passing), None)
        if first is not known.places[0]:
            self._courtesy.io_held.add(lane.group)
        if first is None:
            return None
        candidate = self._candidate(lane, first, now)
        if lane.renewed and self._rules.declared.aging is not None:
            heads.renewed = True
            places = known.places if passing is known.places else [first, *passing]
            oldest = min(places, key=lambda place: place.aged_from)
            if self.effective(lane, oldest, now) != candidate.effective:
                candidate = min(self._candidate(lane, place, now) for place in places)
            self._note_aging(heads, lane, oldest, self.effective(lane, oldest, now), now)
        else:
            self._note_aging(heads, lane, candidate.place, candidate.effective, now)
        return candidate

    def _candidate(self, lane: Lane, place: Place, now: int) -> Candidate:
        return Candidate(self.effective(lane, place, now), place.queued_at, place.place_id, lane, place)

    def _note_aging(self, heads: _Heads, lane: Lane, place: Place, effective: int, now: int) -> None:
        """Look again when the head of a lane grows more urgent, where that can change whose turn it is."""
        aging = self._rules.declared.aging
        if aging is None or effective <= aging.ceiling:
            return
        step = next_step_ms(aging, lane.urgency, now - place.aged_from)
        if step is not None:
            step_at = place.aged_from + step
            heads.next_step = step_at if heads.next_step is None else min(heads.next_step, step_at)
        if self._rules.is_shared:
            waits = [wait_until_ms(aging, lane.urgency, line) for line in self._lines() if line < effective]
            wait = min((each for each in waits if each is not None), default=None)
        else:
            wait = step
        if wait is not None:
            self._gates.look_again(place.aged_from + wait, Scope(ScopeKind.GROUP, lane.group))

    def _lines(self) -> tuple[int, ...]:
        """Where a task passes over the shares of groups, or is no longer held by the pressure."""
        declared = self._rules.declared
        urgent = declared.aging.urgent if declared.aging is not None else None
        held_from = self._courtesy.held_from
        # One step more urgent, and the pressure holds it no longer.
        lines = (declared.preempt_at, urgent, None if held_from is None else held_from - 1)
        return tuple(line for line in lines if line is not None)
