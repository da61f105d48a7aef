"""A queue, slots and rules in memory, driven as by the dispatcher, so that every start can be observed.

The disk is a mapping of lanes to places; the picker sees it through a real ``Front`` of small size.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from taskmill.dispatch.backpressure import Backpressure
from taskmill.dispatch.front import Front
from taskmill.dispatch.limits import Load
from taskmill.dispatch.picker import Picker
from taskmill.model.controls import EVERYTHING, Bucket, Change, Controls, Declared, Pause, Scope, ScopeKind
from taskmill.model.io_budget import IoBudget, budget_to_store
from taskmill.model.machine import UNKNOWN_CAPACITY, Capacity, ThrottlePolicy
from taskmill.model.settings import RateLimit
from taskmill.model.task import Lane, Place, Waiting
from taskmill.model.type_name import domain_of
from taskmill.policy.aging import effective_priority
from taskmill.policy.rates import permits_at, take_permits
from taskmill.policy.rules import Rules


class Running(NamedTuple):
    """A task that holds a slot."""

    id: int
    group: str
    type: str
    started_at: int
    budget: IoBudget | None = None


class Look(NamedTuple):
    """A reading of the machine."""

    pressure: float = 0.0
    capacity: Capacity = UNKNOWN_CAPACITY
    known: Capacity = UNKNOWN_CAPACITY
    pressures: Mapping[str, float] = {}


class World:
    """Offers submits, endings, rules and time; :meth:`fill` lets the picker use the free slots."""

    def __init__(self, declared: Declared | None = None, *, front_size: int = 512) -> None:
        self.now = 1_000_000
        self.declared = Declared() if declared is None else declared
        self.front_size = front_size
        self.changes: dict[Scope, Change] = {}
        self.pauses: dict[Scope, Pause] = {}
        self.unknown: set[str] = set()
        self.disk: dict[Lane, list[Place]] = {}
        self.running: list[Running] = []
        self.load = Load()
        self.front = Front()
        self.throttle = ThrottlePolicy()
        self.backpressure = Backpressure(self.load, self.throttle)
        self.seen: Look | None = None
        """The last reading of the machine; None until there is one."""
        self.picker = Picker(self.front, self.load, self.knows, self.backpressure)
        self.starts: list[Waiting] = []
        self._ids = 0
        self._tried = False
        """True if the last turn picked anything, even only tasks that were gone already."""
        self.rule()

    @property
    def slots(self) -> int:
        return self.declared.max_concurrency

    @property
    def rules(self) -> Rules:
        return self.picker.rules

    def knows(self, type: str) -> bool:
        return type not in self.unknown

    # Events

    def submit(
        self,
        group: str,
        priority: int = 128,
        type: str = "d::t",
        *,
        renewed: bool = False,
        age: int = 0,
        io: IoBudget | str | None = None,
    ) -> int:
        lane, place = self._store(group, priority, type, renewed=renewed, age=age, io=io)
        self.front.add(lane, place)
        return place.id

    def submit_elsewhere(self, group: str, priority: int, type: str, io: IoBudget | str | None = None) -> None:
        """Submit as another process: the next survey finds the task."""
        self._store(group, priority, type, io=io)
        self.survey()

    def _store(
        self,
        group: str,
        priority: int,
        type: str,
        *,
        renewed: bool = False,
        age: int = 0,
        io: IoBudget | str | None = None,
    ) -> tuple[Lane, Place]:
        self._ids += 1
        lane = Lane(group, priority, type, renewed)
        place = Place(self.now - age, self._ids, self._ids, self.now if renewed else None, budget_to_store(io))
        insort(self.disk.setdefault(lane, []), place)
        return lane, place

    def survey(self) -> None:
        self.front.survey(self.disk)
        self._read(self.disk)

    def doubt(self, lane: Lane) -> None:
        self.front.doubt([lane])

    def cancel(self, lane: Lane, place: Place) -> None:
        """Remove a waiting task; the front may still have it."""
        self._off_disk(lane, place)

    def end(self, task: Running) -> None:
        self.running.remove(task)
        self.load.end(task.group, task.type, task.budget)
        self.picker.shares.ended(task.group, self.now - task.started_at)

    def see(self, look: Look) -> None:
        """Take a new reading of the machine."""
        self.seen = look
        if self.backpressure.see(look):
            self.picker.look_at_all()

    def learn(self, type: str, moved: IoBudget) -> None:
        """Learn what a successful run has moved."""
        self.backpressure.learn(type, moved)

    def rule(self, declared: Declared | None = None, **settings: Any) -> None:
        """Apply other rules from now on."""
        self.declared = msgspec.structs.replace(self.declared if declared is None else declared, **settings)
        controls = Controls(0, None, dict(self.changes), dict(self.pauses))
        self.picker.rule(Rules(self.declared, controls), (), self.now)

    def pause(self, scope: Scope) -> None:
        self.pauses.setdefault(scope, Pause(self.now))
        self.rule()

    def resume(self, scope: Scope) -> None:
        self.pauses.pop(scope, None)
        self.rule()

    # Actions of the dispatcher

    def fill(self) -> list[Waiting]:
        """Run turns until nothing more starts; return the starts."""
        started: list[Waiting] = []
        quiet = 0
        while quiet < 2:
            started += self.turn()
            quiet = 0 if self._tried else quiet + 1
        return started

    def turn(self) -> list[Waiting]:
        """Plan with the front, claim what still waits, take permits, and read the requested lanes."""
        picks = self.picker.pick(self.slots, self.slots - len(self.running), self.now)
        self._tried = bool(picks)
        buckets = self.picker.limits.buckets.promised(self.rules)
        refill = self.front.unread()
        started = [pick for pick in picks if self._claim(pick.id) is not None]
        for pick in picks:
            if pick not in started:
                self.load.end(pick.group, pick.type, pick.budget)
        self.picker.turn_over(self._taken(buckets, started), all_started=len(started) == len(picks))
        self._read(refill)
        for pick in started:
            self.running.append(Running(pick.id, pick.group, pick.type, self.now, pick.budget))
        self.starts += started
        return started

    def _claim(self, id: int) -> Place | None:
        for lane, place in self.waiting():
            if place.id == id:
                self._off_disk(lane, place)
                return place
        return None

    def _off_disk(self, lane: Lane, place: Place) -> None:
        self.disk[lane].remove(place)
        if not self.disk[lane]:
            del self.disk[lane]

    def _taken(
        self, buckets: list[tuple[Scope, RateLimit, Bucket]], started: list[Waiting]
    ) -> Iterator[tuple[Scope, Bucket]]:
        count = Counter[Scope]()
        for pick in started:
            count.update([Scope(ScopeKind.GROUP, pick.group), Scope(ScopeKind.TYPE, pick.type)])
        for scope, limit, bucket in buckets:
            assert count[scope] <= permits_at(bucket, limit, self.now), f"{scope} started without a permit"
            yield scope, take_permits(bucket, limit, self.now, count[scope])

    def _read(self, lanes: Mapping[Lane, object] | list[Lane]) -> None:
        self.front.read({lane: self.disk.get(lane, [])[: self.front_size] for lane in lanes}, self.front_size)

    # The actual state

    def waiting(self) -> Iterator[tuple[Lane, Place]]:
        for lane, places in list(self.disk.items()):
            for place in list(places):
                yield lane, place

    def effective(self, lane: Lane, place: Place) -> int:
        return effective_priority(self.declared.aging, lane.urgency, self.now - place.aged_from)

    def order(self, lane: Lane, place: Place) -> tuple[int, int, int]:
        return self.effective(lane, place), place.queued_at, place.place_id

    def is_open(self, lane: Lane) -> bool:
        """True if a task of this lane may start, given a slot; computed here without the picker."""
        group, domain = self.rules.group(lane.group), domain_of(lane.type)
        scopes = (EVERYTHING, Scope(ScopeKind.GROUP, lane.group), Scope(ScopeKind.DOMAIN, domain))
        if lane.type in self.unknown or any(scope in self.pauses for scope in scopes):
            return False
        if group.cap is not None and sum(task.group == lane.group for task in self.running) >= group.cap:
            return False
        domain_cap = self.rules.domain_cap(domain)
        if domain_cap is not None and sum(domain_of(task.type) == domain for task in self.running) >= domain_cap:
            return False
        return all(
            limit is None or self.picker.limits.buckets.permits(scope, limit) > 0
            for scope in (Scope(ScopeKind.GROUP, lane.group), Scope(ScopeKind.TYPE, lane.type))
            for limit in [self.rules.rate(scope)]
        )

    def startable(self) -> list[tuple[Lane, Place]]:
        return [(lane, place) for lane, place in self.waiting() if self.is_open(lane)]

    def candidates(self) -> dict[str, Waiting]:
        """Return the picker's candidate of each group."""
        self.picker.settle(self.slots, self.now)
        return dict(self.picker._next_of)

    def afresh(self) -> World:
        """Return the same world with a new picker."""
        other = World(self.declared, front_size=self.front_size)
        other.now, other.changes, other.pauses, other.unknown = self.now, self.changes, self.pauses, self.unknown
        other.disk = {lane: list(places) for lane, places in self.disk.items()}
        other.running = list(self.running)
        other.backpressure._learned = dict(self.backpressure._learned)
        if self.seen is not None:
            other.see(self.seen)
        for task in self.running:
            other.load.begin(task.group, task.type, task.budget)
        for group, lanes in self.front.groups.items():
            for lane, known in lanes.items():
                copy = other.front._known(lane)
                copy.places, copy.complete = list(known.places), known.complete
                other.front.touch([group])
        other.rule()
        other.picker.limits.buckets._buckets.update(self.picker.limits.buckets._buckets)
        return other
