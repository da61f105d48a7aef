"""Gates: what holds back a group, a task type or a domain now, and when to look again.

A closed gate remembers which groups it holds back, so that they are looked at again when it opens: when a slot of the
domain is given back, when the next permit comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from taskmill.model.controls import NO_CONTROLS, Bucket, Declared, Scope, ScopeKind
from taskmill.model.explanation import Reason
from taskmill.model.io_budget import IoBudget
from taskmill.model.rate_limit import RateLimit
from taskmill.model.stages import Lane
from taskmill.model.task_name import domain_of
from taskmill.policy.rules import Rules
from taskmill.runtime.load import Load
from taskmill.runtime.meters import Meters

MANY = 1_000_000_000
"""Stands for what is not limited, and for what waits on disk beyond what is in sight."""


def scopes_of(lane: Lane) -> tuple[Scope, ...]:
    """What limits the tasks of a lane."""
    return (
        Scope(ScopeKind.GROUP, lane.group),
        Scope(ScopeKind.DOMAIN, domain_of(lane.type)),
        Scope(ScopeKind.TYPE, lane.type),
    )


class Gates:
    """Says who may start, as far as caps, rates and pauses are concerned."""

    def __init__(self, load: Load, knows: Callable[[str], bool]) -> None:
        self.rules = Rules(Declared(), NO_CONTROLS)
        self.meters = Meters()
        self.knows = knows
        """Whether tasks of a type can be run here."""
        self._load = load
        self._timers: list[tuple[int, Scope]] = []
        self._timed: dict[Scope, int] = {}
        self._held_by: dict[Scope, set[str]] = {}
        """Groups with lanes that a domain or a task type holds back."""

    def rule(self, rules: Rules, buckets: Iterable[tuple[Scope, Bucket]], now: int) -> None:
        """From now on these rules hold; everything is to be looked at again."""
        self.meters.rule(self.rules, rules, buckets, now)
        self.rules = rules
        self._timers.clear()
        self._timed.clear()
        self._held_by.clear()

    # Asking

    def permits_of_group(self, group: str, now: int) -> int:
        """How many tasks of a group may start now, as far as its rate and its pauses are concerned."""
        rate = self.rules.group(group).rate
        if rate is None and not self.rules.controls.pauses:
            return MANY
        scope = Scope(ScopeKind.GROUP, group)
        if self.rules.is_paused(scope):
            return 0
        return MANY if rate is None else self._permits(scope, rate, now)

    def is_open(self, lane: Lane, now: int) -> bool:
        """Whether tasks of a lane may start, as far as their type and domain are concerned."""
        reason = self.hold_on(lane.type, now)
        if reason == "domain_cap":
            self._held_by.setdefault(Scope(ScopeKind.DOMAIN, domain_of(lane.type)), set()).add(lane.group)
        elif reason == "type_rate":
            self._held_by.setdefault(Scope(ScopeKind.TYPE, lane.type), set()).add(lane.group)
        return reason is None

    def hold_on(self, type: str, now: int) -> Reason | None:
        """Return what keeps tasks of a type from starting, whatever their group."""
        if not self.knows(type):
            return "no_handler"
        gate = self.rules.gate(type)
        if gate is None:
            return None
        if gate.is_paused:
            return "domain_paused"
        if gate.cap is not None and self._load.in_domain(gate.domain.name) >= gate.cap:
            return "domain_cap"
        if gate.rate is not None and not self._permits(gate.type, gate.rate, now):
            return "type_rate"
        return None

    def _permits(self, scope: Scope, rate: RateLimit, now: int) -> int:
        """How many tasks a rate limit lets start now; if none, it is looked at again when it does."""
        if self._timed.get(scope, now) > now and scope.kind is ScopeKind.TYPE:
            return 0
        permits = self.meters.permits(scope, rate)
        if not permits:
            self.look_again(self.meters.next_permit(scope, rate), scope)
        return permits

    def room_in(self, scope: Scope) -> int:
        """How many more tasks of a group, a domain or a task type could start now, given slots."""
        match scope.kind:
            case ScopeKind.GROUP:
                cap, running = self.rules.group(scope.name).cap, self._load.in_group(scope.name)
            case ScopeKind.DOMAIN:
                cap, running = self.rules.domain_cap(scope.name), self._load.in_domain(scope.name)
            case _:
                cap, running = None, 0
        room = MANY if cap is None else cap - running
        rate = None if scope.kind is ScopeKind.DOMAIN else self.rules.rate(scope)
        return room if rate is None else min(room, self.meters.permits(scope, rate))

    # Taking

    def take(self, group: str, type: str, budget: IoBudget | None) -> None:
        """A task is about to start."""
        self._load.begin(group, type, budget)
        if self.rules.group(group).rate is not None:
            self.meters.take(Scope(ScopeKind.GROUP, group))
        if (gate := self.rules.gate(type)) is not None and gate.rate is not None:
            self.meters.take(gate.type)

    # Looking again

    def look_again(self, at: int, scope: Scope) -> None:
        timed = self._timed.get(scope)
        if timed is None or at < timed:
            self._timed[scope] = at
            heappush(self._timers, (at, scope))

    @property
    def next_moment(self) -> int | None:
        """When something changes by itself: a permit, or a task that grows more urgent."""
        return self._timers[0][0] if self._timers else None

    def changed(self, now: int) -> set[str]:
        """The groups to look at again, because a domain has given slots back or their time has come."""
        groups: set[str] = set()
        for domain in self._load.take_eased_domains():
            groups |= self._held_by.pop(Scope(ScopeKind.DOMAIN, domain), set())
        while self._timers and self._timers[0][0] <= now:
            at, scope = heappop(self._timers)
            if self._timed.get(scope) == at:
                del self._timed[scope]
            groups |= self._concerned_by(scope)
        return groups

    def turn_over(self, taken: Iterable[tuple[Scope, Bucket]], *, all_started: bool) -> set[str]:
        """The turn is committed or has failed, with these permits taken; returns the groups to look at again."""
        groups: set[str] = set()
        if not all_started:
            # Permits that were promised to what did not start are there for others, who were told to come back later.
            for scope in self.meters.promised_scopes:
                self._timed.pop(scope, None)
                groups |= self._concerned_by(scope)
        self.meters.turn_over(taken, self.rules)
        return groups

    def _concerned_by(self, scope: Scope) -> set[str]:
        """The groups to look at again when something about a scope has changed."""
        return {scope.name} if scope.kind is ScopeKind.GROUP else self._held_by.pop(scope, set())
