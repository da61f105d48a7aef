"""The heads of lanes: which task each lane of a group would start next, and which of them is first.

A group may have thousands of lanes (each cron task has a type of its own), so a start must not cost a look at all of
them. The head of a lane is kept until that lane changes. When anything else may have changed (the rules, a limit, the
pressure, a step of aging), the whole group is looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from taskmill.dispatch.backpressure import Backpressure
from taskmill.dispatch.front import Front, LaneFront
from taskmill.dispatch.limits import MANY, Limits
from taskmill.model.controls import Scope, ScopeKind
from taskmill.model.task import Lane, Place, Waiting
from taskmill.policy.aging import effective_priority, next_step_ms, wait_until_ms


class _Heads:
    """The heads of the lanes of one group."""

    __slots__ = ("by_lane", "has_limits", "in_order", "next_step", "renewed", "throttled", "waiting")

    def __init__(self) -> None:
        self.by_lane: dict[Lane, tuple[Waiting, int]] = {}
        """The head of each lane, and how many tasks wait in the lane."""
        self.in_order: list[Waiting] = []
        """A heap of heads. Entries that are no longer heads are dropped when they come up."""
        self.waiting = 0
        self.throttled: set[Lane] = set()
        self.has_limits = False
        """True if a domain or a task type may hold some lanes back."""
        self.next_step: int | None = None
        """When one of the heads becomes more urgent."""
        self.renewed = False
        """True if a task behind a head has restarted aging, so that the order of the lane is not that of urgency."""

    def put(self, lane: Lane, head: Waiting | None, waiting: int) -> None:
        """Note the head of a lane, or None if it has none, and how many tasks wait there."""
        known = self.by_lane.get(lane)
        if known is not None:
            self.waiting -= known[1]
        if head is None:
            if known is not None:
                del self.by_lane[lane]
            return
        self.by_lane[lane] = head, waiting
        self.waiting += waiting
        if known is None or known[0] != head:
            heappush(self.in_order, head)
            if len(self.in_order) > 4 * len(self.by_lane) + 16:
                self.in_order = [head for head, _ in self.by_lane.values()]
                heapify(self.in_order)

    def first(self) -> Waiting | None:
        while self.in_order:
            head = self.in_order[0]
            known = self.by_lane.get(head.lane)
            if known is not None and known[0] == head:
                return head
            heappop(self.in_order)
        return None


class LaneHeads:
    """For each group, the heads of its lanes and the first of them."""

    def __init__(self, front: Front, limits: Limits, backpressure: Backpressure) -> None:
        self._front = front
        self._limits = limits
        self._backpressure = backpressure
        self._groups: dict[str, _Heads] = {}

    def look(self, group: str, lanes: Iterable[Lane] | None, now: int) -> tuple[Waiting | None, int]:
        """Return the next task of a group and how many wait; only ``lanes`` have changed (None: all)."""
        known = self._front.of(group)
        if not known or not (permits := self._limits.permits_of_group(group)):
            self._groups.pop(group, None)
            return None, 0
        heads = self._groups.get(group)
        if lanes is None or heads is None or heads.has_limits or self._backpressure.holds_io:
            heads = self._groups[group] = _Heads()
            lanes = known
        for lane in lanes:
            self._look_at(heads, lane, known.get(lane), now)
        return heads.first(), min(heads.waiting, permits)

    def may_have_aged(self, group: str, now: int) -> bool:
        """True if the heads of a group may be in another order by now."""
        heads = self._groups.get(group)
        if heads is None:
            return False
        return heads.renewed or (heads.next_step is not None and heads.next_step <= now)

    def is_throttled(self, group: str) -> bool:
        """True if tasks of a group wait for the pressure to fall."""
        heads = self._groups.get(group)
        return heads is not None and bool(heads.throttled)

    def effective(self, lane: Lane, place: Place, now: int) -> int:
        aging = self._limits.rules.declared.aging
        return lane.urgency if aging is None else effective_priority(aging, lane.urgency, now - place.aged_from)

    def _look_at(self, heads: _Heads, lane: Lane, known: LaneFront | None, now: int) -> None:
        heads.throttled.discard(lane)
        heads.has_limits = heads.has_limits or self._limits.rules.limits_on_type(lane.type) is not None
        head: Waiting | None = None
        if known is not None and known.places and self._limits.is_open(lane):
            head = self._head(heads, lane, known, now)
            if head is not None and self._backpressure.holds_back(head.effective):
                heads.throttled.add(lane)
                head = None
        heads.put(lane, head, len(known.places) if known is not None and known.complete else MANY)

    def _head(self, heads: _Heads, lane: Lane, known: LaneFront, now: int) -> Waiting | None:
        """Return the next task of a lane: the oldest, unless the aging of some was restarted."""
        passing: Iterable[Place] = known.places
        if self._backpressure.holds_io:
            passing = (place for place in known.places if self._backpressure.may_pass(lane.type, place.io))
        first = next(iter(passing), None)
        if first is not known.places[0]:
            self._backpressure.io_held.add(lane.group)
        if first is None:
            return None
        head = self.ranked(lane, first, now)
        if lane.renewed and self._limits.rules.declared.aging is not None:
            heads.renewed = True
            places = known.places if passing is known.places else [first, *passing]
            oldest = min(places, key=lambda place: place.aged_from)
            if self.effective(lane, oldest, now) != head.effective:
                head = min(self.ranked(lane, place, now) for place in places)
            self._note_aging(heads, lane, oldest, self.effective(lane, oldest, now), now)
        else:
            self._note_aging(heads, lane, head.place, head.effective, now)
        return head

    def ranked(self, lane: Lane, place: Place, now: int) -> Waiting:
        return Waiting(self.effective(lane, place, now), place.queued_at, place.place_id, lane, place)

    def _note_aging(self, heads: _Heads, lane: Lane, place: Place, effective: int, now: int) -> None:
        """Look again when the head of a lane becomes more urgent, if that can change which group is next."""
        aging = self._limits.rules.declared.aging
        if aging is None or effective <= aging.ceiling:
            return
        step = next_step_ms(aging, lane.urgency, now - place.aged_from)
        if step is not None:
            step_at = place.aged_from + step
            heads.next_step = step_at if heads.next_step is None else min(heads.next_step, step_at)
        if self._limits.rules.is_shared:
            waits = [wait_until_ms(aging, lane.urgency, line) for line in self._lines() if line < effective]
            wait = min((each for each in waits if each is not None), default=None)
        else:
            wait = step
        if wait is not None:
            self._limits.look_again(place.aged_from + wait, Scope(ScopeKind.GROUP, lane.group))

    def _lines(self) -> tuple[int, ...]:
        """Return the priorities from which a task may start beyond its group's share, or despite the pressure."""
        declared = self._limits.rules.declared
        urgent = declared.aging.urgent if declared.aging is not None else None
        held_from = self._backpressure.held_from
        # The pressure holds priorities from held_from on.
        lines = (declared.preempt_at, urgent, None if held_from is None else held_from - 1)
        return tuple(line for line in lines if line is not None)
