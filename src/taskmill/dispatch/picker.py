"""The picker: which tasks of the front start next.

A heap has one entry per group: the task that the group would start. If groups share the slots by weight, the group
that is furthest behind its share comes first. Otherwise the most urgent task comes first, and groups with equally
urgent tasks take turns. Only groups that have changed get new entries, and inside a group only changed lanes are looked
at (``lane_heads.py``), so the cost of a start grows neither with the backlog nor with the number of groups or types.

A limit on a group (its cap, its rate, a pause) keeps only that group out of the heap. A limit on a task type or a
domain makes the picker skip the lanes concerned (docs/decisions/0015).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from copy import deepcopy
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count

import msgspec

from taskmill.dispatch.backpressure import Backpressure
from taskmill.dispatch.front import Front
from taskmill.dispatch.lane_heads import LaneHeads
from taskmill.dispatch.limits import Limits, Load
from taskmill.dispatch.prefetch import NOTHING_WAITS, Room, WaitingFront
from taskmill.dispatch.shares import Shares
from taskmill.model.cluster import Demand
from taskmill.model.controls import EVERYTHING, Bucket, Scope
from taskmill.model.queue_state import Turns
from taskmill.model.task import Claimed, Lane, Place, Waiting
from taskmill.policy.fair_queue import RoundRobin
from taskmill.policy.holds import passes_shares, scopes_of
from taskmill.policy.preemption import UrgentTask
from taskmill.policy.rules import Rules

_LAST = (1 << 62, 0, 0)


class _Entry(msgspec.Struct, frozen=True, order=True, gc=False):
    key: tuple[float | int, ...]
    version: int
    group: str


def starts_before(task: Waiting, other: Claimed) -> bool:
    """True if a task is more urgent than a prefetched one, or as urgent and ahead of it in its group."""
    if task.effective != other.effective:
        return task.effective < other.effective
    return task.group == other.group and (task.queued_at, task.place_id) < (other.queued_at, other.place_id)


class Picker:
    """Chooses the tasks that start in free slots, by the rules in force."""

    def __init__(self, front: Front, load: Load, knows: Callable[[str], bool], backpressure: Backpressure) -> None:
        self._front = front
        self._load = load
        self.backpressure = backpressure
        self.limits = Limits(load, knows)
        self._heads = LaneHeads(front, self.limits, backpressure)
        self.throttled: set[str] = set()
        """Groups with tasks that wait for the pressure to fall."""
        self.shares = Shares()
        self._round_robin = RoundRobin()
        self._next_of: dict[str, Waiting] = {}
        """By group: the task that it would start."""
        self._versions: dict[str, int] = {}
        self._numbers = count()
        self._queue: list[_Entry] = []
        self._urgent: list[_Entry] = []
        self._pressing: set[str] = set()
        """Groups whose next task is urgent enough to preempt others."""
        self._slots = self._shared_slots = 0
        self._take_back: dict[int, Callable[[], None]] = {}
        """By the id of a task that was just picked: a function that takes back the turn of its group."""
        self.looked: set[str] | None = None
        """Groups examined since the hold counter last asked; None if metrics are off."""

    @property
    def rules(self) -> Rules:
        return self.limits.rules

    def next_of(self, group: str) -> Waiting | None:
        """Return the task that a group would start next, if no limit holds the group back."""
        return self._next_of.get(group)

    # For simulations

    def turns(self) -> Turns:
        """Return a copy of the turns of groups and of the token buckets."""
        return Turns(deepcopy(self._round_robin), self.shares.copy_of_turns(), self.limits.buckets.copy())

    def take_turns(self, turns: Turns) -> None:
        """Continue with the turns of another picker. Its buckets are given with the rules."""
        self._round_robin = deepcopy(turns.round_robin)
        self.shares.take_turns(turns.virtual_time)

    # Changes

    def rule(self, rules: Rules, buckets: Iterable[tuple[Scope, Bucket]], now: int) -> None:
        """Apply new rules."""
        is_first = self.rules.controls.version < 0
        weights_changed = not is_first and not self.rules.shares_like(rules)
        self.limits.rule(rules, buckets, now)
        self.shares.rules_changed(shared=rules.is_shared, weights_changed=weights_changed)
        self.look_at_all()

    def clock_stepped(self, by_ms: int, now: int) -> None:
        """Follow a step of the wall clock."""
        self.limits.clock_stepped(by_ms, now)
        self.look_at_all()

    def look_at_all(self) -> None:
        """Look at every group again, and judge all IO budgets again."""
        self._load.io_eased = True
        self._front.touch({*self._front.groups, *self._load.groups, *self._load.elsewhere.groups, *self._versions})

    def not_started(self, picks: Sequence[Waiting]) -> None:
        """Give groups their turns back for picked tasks that did not start, because they had expired or ended."""
        for pick in reversed(picks):
            if (take_back := self._take_back.get(pick.id)) is not None:
                take_back()
                self._front.touch([pick.group])

    def turn_over(self, taken: Iterable[tuple[Scope, Bucket]], *, all_started: bool) -> None:
        """Note the end of a turn, committed or failed, and the buckets it has changed."""
        self._front.touch(self.limits.turn_over(taken, all_started=all_started))

    # Picking

    def pick(
        self, slots: int, free: int, now: int, *, before: Claimed | None = None, room: Room | None = None
    ) -> list[Waiting]:
        """Take the next tasks to start out of the front, at most ``free``, in their order.

        With ``before``, take only tasks that start before that prefetched one. With ``room``, continue beyond ``free``
        while there is room to prefetch.
        """
        self._take_back.clear()
        if self.backpressure.is_watching:
            self._reopen()
        self.settle(slots, now)
        picked: list[Waiting] = []
        if (free <= 0 and room is None) or self.rules.is_paused(EVERYTHING):
            return picked
        if before is None and (lane := self._only_lane()) is not None:
            return self._take_first(lane, free if room is None else free + self._room_in(lane, free, room, now), now)
        while (len(picked) < free or room is not None) and (chosen := self._next(now, before)) is not None:
            group, by_share = chosen
            task = self._next_now(group, now)
            if len(picked) >= free and (task is None or room is None or not self._has_room(task, room)):
                break
            if task is None or not self.backpressure.admits(task.lane.type, task.place.io):
                # Another task of the group may fit, or have no budget.
                self._front.touch([group])
                self.settle(slots, now)
                continue
            picked.append(self._take(task, by_share=by_share))
            if self._is_unread(task.lane) and not self.rules.is_shared:
                # The rest of this lane is on disk and may be more urgent than other lanes: read it first.
                break
            self.settle(slots, now)
        return picked

    def ranked(self, lane: Lane, place: Place, now: int) -> Waiting:
        """Return a task with its rank in the queue, by the aging in force."""
        return self._heads.ranked(lane, place, now)

    def first_waiting(self, groups: Collection[str], slots: int, now: int) -> WaitingFront:
        """Return the known tasks that may start next, of all groups and of each of the given ones."""
        self.settle(slots, now)
        if self.rules.is_paused(EVERYTHING) or (chosen := self._first(now)) is None:
            return NOTHING_WAITS
        ranks = {group: self._next_of[group].rank for group in groups if self._may_start(group)}
        return WaitingFront(self._next_of[chosen[0]].effective, ranks)

    def _reopen(self) -> None:
        """Look again at groups with tasks whose IO may fit now."""
        self.backpressure.arrived, self._front.has_budgets = self._front.has_budgets, False
        self._front.touch(self.backpressure.reopen())

    @property
    def is_held_by_machine(self) -> bool:
        """True if some task waits for nothing but the machine. Call :meth:`settle` first."""
        return bool(self.throttled or self.backpressure.io_held) and not self.rules.is_paused(EVERYTHING)

    @property
    def has_candidates(self) -> bool:
        """True if a known task may start, given a free slot. Call :meth:`settle` first."""
        return bool(self._next_of) and not self.rules.is_paused(EVERYTHING)

    def pressing(self, now: int, most: int) -> list[UrgentTask]:
        """Return waiting tasks that could start and may preempt others, at most ``most``."""
        if self.rules.is_paused(EVERYTHING):
            return []
        line = self.rules.declared.preempt_at
        waiting = sorted(
            (effective, place.queued_at, place.place_id, place.id, lane, place.io)
            for group in self._pressing
            for lane, known in self._front.of(group).items()
            if self.limits.is_open(lane)
            for place in known.places[:most]
            if (effective := self._heads.effective(lane, place, now)) <= line
            if not self.backpressure.holds_back(effective) and self.backpressure.may_pass(lane.type, place.io)
        )
        room: dict[Scope, int] = {}
        found: list[UrgentTask] = []
        for effective, _, _, id, lane, io in waiting:
            for scope in (scopes := scopes_of(lane.group, lane.type)):
                if scope not in room:
                    room[scope] = self.limits.room_in(scope)
            if len(found) < most and all(room[scope] > 0 for scope in scopes):
                found.append(UrgentTask(effective, self.backpressure.budget_of(lane.type, io), id, lane.type))
                for scope in scopes:
                    room[scope] -= 1
        return found

    # Keeping the entries current

    def settle(self, slots: int, now: int) -> None:
        """Look again at the groups that have changed."""
        self.limits.at(now)
        self._front.touch(self.limits.changed(now))
        for group in self._load.take_eased_groups():
            self._front.touched.setdefault(group, set())
        touched = self._front.touched
        # Groups share the slots of all nodes.
        self._slots, slots = slots, slots + self._load.elsewhere.slots
        if slots != self._shared_slots:
            self._shared_slots, self.shares.is_stale = slots, True
        if not touched and not (self.rules.is_shared and self.shares.is_stale):
            return
        self._front.touched = {}
        for group, lanes in touched.items():
            self._look_at(group, lanes, now)
        groups = set(touched)
        if self.shares.are_kept and self.shares.compute(slots):
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
        """Find the task that a group would start next; only ``lanes`` of it have changed (None: all)."""
        self._versions[group] = next(self._numbers)
        running, settings = self._load.in_group(group), self.rules.group(group)
        is_over = not self._front.of(group)
        first, waiting = self._heads.look(group, lanes, now)
        if self._heads.is_throttled(group):
            self.throttled.add(group)
        else:
            self.throttled.discard(group)
        if first is None or self.limits.group_hold(group) is not None:
            self._next_of.pop(group, None)
        else:
            self._next_of[group] = first
        if self.shares.are_kept:
            demand = Demand(running, waiting, settings.weight, settings.cap, settings.min_slots)
            self.shares.set_demand(group, demand if running or waiting else None, drained=is_over)
        if is_over and not running:
            del self._versions[group]
            self._pressing.discard(group)
            self._round_robin.leave(group)

    def _in_order(self, groups: set[str]) -> Iterable[str]:
        """Order groups whose work arrives at the same moment by their first tasks."""
        if len(groups) < 2 or self.rules.is_shared:
            return groups
        return sorted(groups, key=lambda group: self._next_of[group].rank if group in self._next_of else _LAST)

    def _enter(self, group: str) -> None:
        """Put the group into the heap where its next task belongs."""
        task = self._next_of.get(group)
        self._pressing.discard(group)
        if task is None:
            return
        version, effective = self._versions[group], task.effective
        if effective <= self.rules.declared.preempt_at:
            self._pressing.add(group)
        if not self.rules.is_shared:
            key = (effective, self._round_robin.last_turn(group), task.queued_at, task.place_id)
            heappush(self._queue, _Entry(key, version, group))
            return
        if passes_shares(effective, self.rules):
            heappush(self._urgent, _Entry(task.rank, version, group))
        if (key_of_share := self.shares.key(group)) is not None:
            # Of groups that are equally far behind, the one whose task is first in the queue is next.
            heappush(self._queue, _Entry((*key_of_share, task.queued_at, task.place_id), version, group))

    def _drop_stale(self) -> None:
        for heap in (self._queue, self._urgent):
            heap[:] = [entry for entry in heap if self._versions.get(entry.group) == entry.version]
            heapify(heap)

    # Taking

    def _next(self, now: int, before: Claimed | None) -> tuple[str, bool] | None:
        """Return the group that is next, and True if that is by its share.

        With ``before``, return only a group whose task starts before that prefetched one.
        """
        chosen = self._first(now)
        if chosen is None or before is None or self._next_of[chosen[0]].effective < before.effective:
            return chosen
        group = before.group
        return (group, True) if self._may_start(group) and starts_before(self._next_of[group], before) else None

    def _may_start(self, group: str) -> bool:
        """True if a group has a task that no limit holds back."""
        task = self._next_of.get(group)
        return task is not None and (not self.rules.limits_anything or self.limits.is_open(task.lane))

    def _first(self, now: int) -> tuple[str, bool] | None:
        """Return the first group in the heap whose task may start, and True if that is by its share."""
        while True:
            heap = self._urgent or self._queue
            if not heap:
                return None
            entry = heap[0]
            if self._versions.get(entry.group) != entry.version:
                heappop(heap)
            elif self.rules.limits_anything and not self.limits.is_open(self._next_of[entry.group].lane):
                # A limit that it shares with other groups, such as the cap of its domain, was used up meanwhile.
                self._front.touch([entry.group])
                self.settle(self._slots, now)
            else:
                return entry.group, heap is self._queue

    def _next_now(self, group: str, now: int) -> Waiting | None:
        """Return the task that the group starts now; None if a limit holds it by now.

        The picker ignores steps of aging that do not change which group is next. So the order inside the group may be
        out of date: for all tasks if slots are shared, otherwise only for tasks whose aging was restarted.
        """
        if self._heads.may_have_aged(group, now):
            self._look_at(group, None, now)
        return self._next_of.get(group)

    def _take(self, task: Waiting, *, by_share: bool) -> Waiting:
        lane, group = task.lane, task.lane.group
        self._front.take(lane, task.place)
        budget = self.backpressure.budget_of(lane.type, task.place.io)
        self.limits.take(group, lane.type, budget)
        if self.rules.is_shared:
            charge = self.shares.started(group, by_share=by_share)
            self._take_back[task.id] = partial(self.shares.not_started, group, charge)
        else:
            before, turn = self._round_robin.last_turn(group), self._round_robin.had_turn(group)
            self._take_back[task.id] = partial(self._round_robin.take_back, group, turn, before)
        return msgspec.structs.replace(task, budget=budget, by_share=by_share)

    def _is_unread(self, lane: Lane) -> bool:
        known = self._front.of(lane.group).get(lane)
        return known is not None and not known.places

    def _only_lane(self) -> Lane | None:
        """Return the only lane if nothing limits it, as in most turns: its tasks start in order."""
        groups = self._front.groups
        if len(groups) != 1 or self.rules.limits_anything or self.backpressure.is_watching:
            return None
        (lanes,) = groups.values()
        if len(lanes) != 1:
            return None
        (lane,) = lanes
        return lane if not lane.renewed and self.limits.knows(lane.type) else None

    def _may_prefetch(self, lane: Lane) -> bool:
        """True if no limit applies to the tasks of a lane."""
        group = self.rules.group(lane.group)
        return group.cap is None and group.rate is None and self.rules.limits_on_type(lane.type) is None

    def _has_room(self, task: Waiting, room: Room) -> bool:
        """Take room to prefetch a task; return False if there is none, or if other nodes need the task."""
        lane = task.lane
        if task.place.io is not None or not self._may_prefetch(lane) or self._preempts(task.effective, room):
            return False
        left = len(self._front.of(lane.group)[lane].places)
        return left > self._load.elsewhere.slots and room.take(lane.type)

    def _room_in(self, lane: Lane, free: int, room: Room, now: int) -> int:
        """Return how many tasks of the only lane to prefetch. Leave some of them for the slots of other nodes."""
        places = self._front.of(lane.group)[lane].places
        left = len(places) - free - self._load.elsewhere.slots
        if left <= 0 or self._preempts(self._heads.effective(lane, places[free], now), room):
            return 0
        return min(room.most(lane.type), left)

    def _preempts(self, effective: int, room: Room) -> bool:
        """True if a task this urgent preempts a running one rather than wait for a slot."""
        return effective <= self.rules.declared.preempt_at and effective < room.least_urgent

    def _take_first(self, lane: Lane, free: int, now: int) -> list[Waiting]:
        places = self._front.take_first(lane, free)
        if places:
            self._load.begin(lane.group, lane.type, slots=len(places))
        return [self._heads.ranked(lane, place, now) for place in places]
