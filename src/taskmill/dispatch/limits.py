"""Pauses, concurrency limits and rate limits while a turn is planned, and when to look at a group again.

The rules are those of :mod:`taskmill.policy.holds`. What holds a group back is remembered here, so that the group is
looked at again only when that may have changed: a slot of the domain was given back, the next token is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from taskmill.dispatch.load import Load
from taskmill.dispatch.token_buckets import TokenBuckets
from taskmill.model.controls import NO_CONTROLS, Bucket, Declared, Scope, ScopeKind
from taskmill.model.io_budget import IoBudget
from taskmill.model.settings import RateLimit
from taskmill.model.task import Lane
from taskmill.policy.holds import Held, holds_on_group, holds_on_type
from taskmill.policy.rules import Rules

MANY = 1_000_000_000
"""Stands for "unlimited", and for the tasks on disk behind the front of a lane."""


class Limits:
    """The limits that hold now, with what is in use of them."""

    def __init__(self, load: Load, knows: Callable[[str], bool]) -> None:
        self.rules = Rules(Declared(), NO_CONTROLS)
        self.buckets = TokenBuckets()
        self.knows = knows
        """True for a task type that can be run here."""
        self.in_group = load.in_group
        self.in_domain = load.in_domain
        self._load = load
        self._now = 0
        self._timers: list[tuple[int, Scope]] = []
        self._timed: dict[Scope, int] = {}
        self._held_by: dict[Scope, set[str]] = {}
        """Groups with lanes that a domain or a task type holds back."""

    def rule(self, rules: Rules, buckets: Iterable[tuple[Scope, Bucket]], now: int) -> None:
        """Apply new rules; every group is to be looked at again."""
        self.buckets.rule(self.rules, rules, buckets, now)
        self.rules = rules
        self._timers.clear()
        self._timed.clear()
        self._held_by.clear()

    def at(self, now: int) -> None:
        self._now = now
        self.buckets.at(now)

    # Asking

    def group_hold(self, group: str) -> Held | None:
        """Return the first rule that holds a group back."""
        return next(holds_on_group(group, self.rules, self), None)

    def type_hold(self, type: str) -> Held | None:
        """Return the first rule that holds a task type back, whatever the group."""
        return next(holds_on_type(type, self.rules, self), None)

    def is_open(self, lane: Lane) -> bool:
        """True if no rule holds the type of a lane back."""
        held = self.type_hold(lane.type)
        if held is not None:
            self._held_by.setdefault(held.scope, set()).add(lane.group)
        return held is None

    def permits_of_group(self, group: str) -> int:
        """Return how many tasks of a group its rate limit and its pauses let start now."""
        rate = self.rules.group(group).rate
        if rate is None and not self.rules.controls.pauses:
            return MANY
        scope = Scope(ScopeKind.GROUP, group)
        if self.rules.is_paused(scope):
            return 0
        return MANY if rate is None else self.permits(scope, rate)

    def permits(self, scope: Scope, limit: RateLimit) -> int:
        """Return how many tokens are left; if none, have the scope looked at again when the next one is there."""
        if self._timed.get(scope, self._now) > self._now and scope.kind is ScopeKind.TYPE:
            return 0
        permits = self.buckets.permits(scope, limit)
        if not permits:
            self.look_again(self.buckets.next_permit(scope, limit), scope)
        return permits

    def room_in(self, scope: Scope) -> int:
        """Return how many more tasks of a group, a domain or a task type could start now, given slots."""
        match scope.kind:
            case ScopeKind.GROUP:
                cap, running = self.rules.group(scope.name).cap, self.in_group(scope.name)
            case ScopeKind.DOMAIN:
                cap, running = self.rules.domain_cap(scope.name), self.in_domain(scope.name)
            case _:
                cap, running = None, 0
        room = MANY if cap is None else cap - running
        rate = None if scope.kind is ScopeKind.DOMAIN else self.rules.rate(scope)
        return room if rate is None else min(room, self.buckets.permits(scope, rate))

    # Taking

    def take(self, group: str, type: str, budget: IoBudget | None) -> None:
        """Take a slot, and tokens, for a task that is about to start."""
        self._load.begin(group, type, budget)
        if self.rules.group(group).rate is not None:
            self.buckets.take(Scope(ScopeKind.GROUP, group))
        if (limits := self.rules.limits_on_type(type)) is not None and limits.rate is not None:
            self.buckets.take(limits.type)

    # Looking again

    def look_again(self, at: int, scope: Scope) -> None:
        """Have the groups that a scope concerns looked at again at an instant."""
        timed = self._timed.get(scope)
        if timed is None or at < timed:
            self._timed[scope] = at
            heappush(self._timers, (at, scope))

    @property
    def next_moment(self) -> int | None:
        """When something changes by itself: a token is there, or a task becomes more urgent."""
        return self._timers[0][0] if self._timers else None

    def changed(self, now: int) -> set[str]:
        """Return the groups to look at again, because a domain gave slots back or their time has come."""
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
        """Note the end of a turn and the buckets it changed; return the groups to look at again."""
        groups: set[str] = set()
        if not all_started:
            # Tokens that were promised to tasks which did not start are free again, before the timers say so.
            for scope in self.buckets.promised_scopes:
                self._timed.pop(scope, None)
                groups |= self._concerned_by(scope)
        self.buckets.turn_over(taken, self.rules)
        return groups

    def _concerned_by(self, scope: Scope) -> set[str]:
        """Return the groups to look at again after a change to a scope."""
        return {scope.name} if scope.kind is ScopeKind.GROUP else self._held_by.pop(scope, set())
