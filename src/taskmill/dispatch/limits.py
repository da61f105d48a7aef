"""The limits on starts while a turn is planned: slots in use, token buckets, pauses, and when to look again.

:class:`Load` counts the slots in use. :class:`TokenBuckets` holds the tokens of the rate limits. :class:`Limits` asks
:mod:`taskmill.policy.holds` whether a group or a task type may start now, and remembers what holds a group back. The
group is looked at again only when that may have changed: a slot of its domain is free again, or the next token is
available.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from taskmill.model.cluster import NOWHERE, Elsewhere
from taskmill.model.controls import NO_CONTROLS, Bucket, Declared, Scope, ScopeKind
from taskmill.model.io_budget import IoBudget
from taskmill.model.settings import RateLimit
from taskmill.model.task import Lane
from taskmill.model.turn import Rate
from taskmill.model.type_name import domain_of
from taskmill.policy.holds import Held, holds_on_group, holds_on_type
from taskmill.policy.io_room import IoLoad
from taskmill.policy.rates import carry_over, full_at, full_bucket, next_permit_at, permits_at, shifted
from taskmill.policy.rules import Rules

MANY = 1_000_000_000
"""Stands for "unlimited", and for the tasks on disk behind the front of a lane."""
FEW_BUCKETS = 64
"""Full buckets are forgotten only if there are more buckets than this."""


class Load:
    """The slots in use by group and by domain, those of tasks about to start included, here and on other nodes."""

    def __init__(self) -> None:
        self.groups: Counter[str] = Counter()
        self.domains: Counter[str] = Counter()
        self.elsewhere: Elsewhere = NOWHERE
        self.io = IoLoad()
        """The bytes that tasks on this node are expected to read, write and send."""
        self.io_eased = False
        """True if there may be room for more IO since :meth:`Backpressure.reopen` last looked."""
        self._eased: set[str] = set()
        self._eased_domains: set[str] = set()

    def in_group(self, group: str) -> int:
        """Return how many slots a group uses on all nodes."""
        return self.groups.get(group, 0) + self.elsewhere.groups.get(group, 0)

    def in_domain(self, domain: str) -> int:
        """Return how many slots a domain uses on all nodes."""
        return self.domains[domain] + self.elsewhere.domains.get(domain, 0)

    def now_elsewhere(self, elsewhere: Elsewhere) -> None:
        """Note the slots that other nodes use now."""
        before, self.elsewhere = self.elsewhere, elsewhere
        self._eased |= {group for group, _ in before.groups.items() ^ elsewhere.groups.items()}
        self._eased_domains |= {domain for domain, _ in before.domains.items() ^ elsewhere.domains.items()}

    def begin(self, group: str, type: str, budget: IoBudget | None = None, slots: int = 1) -> None:
        """Take a slot, or several for tasks without a budget."""
        self.groups[group] += slots
        self.domains[domain_of(type)] += slots
        if budget is not None:
            self.io.add(budget)

    def end(self, group: str, type: str, budget: IoBudget | None = None) -> None:
        """Give a slot back."""
        domain = domain_of(type)
        if budget is not None:
            self.io.remove(budget)
            self.io_eased = True
        self.groups[group] -= 1
        if not self.groups[group]:
            del self.groups[group]
        self.domains[domain] -= 1
        self._eased.add(group)
        self._eased_domains.add(domain)

    def take_eased_groups(self) -> set[str]:
        """Return the groups that gave slots back since the last call."""
        eased, self._eased = self._eased, set()
        return eased

    def take_eased_domains(self) -> set[str]:
        """Return the domains that gave slots back since the last call."""
        eased, self._eased_domains = self._eased_domains, set()
        return eased


class TokenBuckets:
    """The tokens of each rate limit, less those that the planned turn is about to take.

    Tokens are promised to the tasks of a plan. The store takes them for the tasks that really start.
    """

    def __init__(self) -> None:
        self._buckets: dict[Scope, Bucket] = {}
        self._promised: dict[Scope, int] = {}
        self.now = 0
        """The time for which a turn is planned."""
        self._many = FEW_BUCKETS
        """With more buckets than this, full ones are forgotten."""

    def rule(self, before: Rules, rules: Rules, stored: Iterable[tuple[Scope, Bucket]], now: int) -> None:
        """Apply changed limits; each bucket keeps its content as far as the new limit allows."""
        buckets = dict(stored) | self._buckets
        self._buckets = {}
        for scope, bucket in buckets.items():
            old, new = before.rate(scope), rules.rate(scope)
            if new is not None:
                self._buckets[scope] = bucket if old is None or old == new else carry_over(bucket, old, new, now)

    def clock_stepped(self, by_ms: int, now: int) -> None:
        """Shift the buckets with a step of the wall clock, as the store has done with those that it keeps."""
        self._buckets = {scope: shifted(bucket, by_ms, now) for scope, bucket in self._buckets.items()}

    def copy(self) -> dict[Scope, Bucket]:
        return dict(self._buckets)

    def permits(self, scope: Scope, limit: RateLimit) -> int:
        """Return how many more tasks may start now."""
        return max(permits_at(self._bucket(scope, limit), limit, self.now) - self._promised.get(scope, 0), 0)

    def next_permit(self, scope: Scope, limit: RateLimit) -> int:
        """Return when the next task may start."""
        bucket = self._bucket(scope, limit)
        promised = self._promised.get(scope, 0)
        if promised:
            bucket = Bucket(bucket.level - promised * bucket.unit, bucket.at, bucket.unit)
        return max(next_permit_at(bucket, limit, self.now), self.now + 1)

    def take(self, scope: Scope) -> None:
        """Promise a token to a task that is about to start."""
        self._promised[scope] = self._promised.get(scope, 0) + 1

    def promised(self, rules: Rules) -> list[Rate]:
        """Return the buckets that the planned turn takes tokens from."""
        return [
            (scope, limit, self._bucket(scope, limit))
            for scope in self._promised
            if (limit := rules.rate(scope)) is not None
        ]

    @property
    def promised_scopes(self) -> Iterable[Scope]:
        return self._promised

    def turn_over(self, taken: Iterable[tuple[Scope, Bucket]], rules: Rules) -> None:
        """Void the promises of a turn that was committed or has failed, and note the buckets it has changed."""
        self._promised.clear()
        self._buckets.update(taken)
        if len(self._buckets) > self._many:
            self._forget_full(rules)

    def _forget_full(self, rules: Rules) -> None:
        """Forget full buckets: a bucket that is not known counts as full."""
        self._buckets = {
            scope: bucket
            for scope, bucket in self._buckets.items()
            if (limit := rules.rate(scope)) is not None and full_at(bucket, limit) > self.now
        }
        self._many = max(2 * len(self._buckets), FEW_BUCKETS)

    def _bucket(self, scope: Scope, limit: RateLimit) -> Bucket:
        bucket = self._buckets.get(scope)
        if bucket is None:
            return full_bucket(limit, self.now)
        if bucket.at > self.now:
            # The wall clock was stepped back: the bucket refills from the new time on.
            bucket = self._buckets[scope] = Bucket(bucket.level, self.now, bucket.unit)
        return bucket


class Limits:
    """The limits in force, and how much of each is in use."""

    def __init__(self, load: Load, knows: Callable[[str], bool]) -> None:
        self.rules = Rules(Declared(), NO_CONTROLS)
        self.buckets = TokenBuckets()
        self.knows = knows
        """True for a task type that can be run here."""
        self.in_group = load.in_group
        self.in_domain = load.in_domain
        self._load = load
        self._timers: list[tuple[int, Scope]] = []
        self._timed: dict[Scope, int] = {}
        self._held_by: dict[Scope, set[str]] = {}
        """Groups with lanes that a domain or a task type holds back."""

    def rule(self, rules: Rules, buckets: Iterable[tuple[Scope, Bucket]], now: int) -> None:
        """Apply new rules. The caller must look at every group again."""
        self.buckets.rule(self.rules, rules, buckets, now)
        self.rules = rules
        self._forget_moments()

    def clock_stepped(self, by_ms: int, now: int) -> None:
        """Follow a step of the wall clock. The caller must look at every group again."""
        self.buckets.clock_stepped(by_ms, now)
        self._forget_moments()

    def _forget_moments(self) -> None:
        self._timers.clear()
        self._timed.clear()
        self._held_by.clear()

    def at(self, now: int) -> None:
        """Set the time for which a turn is planned."""
        self.buckets.now = now

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
        """Return how many tokens are left; if none, schedule a look at the scope for the instant of the next token."""
        if self._timed.get(scope, 0) > self.buckets.now and scope.kind is ScopeKind.TYPE:
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
        """Look again, at the given instant, at the groups that a scope concerns."""
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
            # Tokens promised to tasks that did not start are free again. Look now; the timers would fire later.
            for scope in self.buckets.promised_scopes:
                self._timed.pop(scope, None)
                groups |= self._concerned_by(scope)
        self.buckets.turn_over(taken, self.rules)
        return groups

    def _concerned_by(self, scope: Scope) -> set[str]:
        """Return the groups to look at again after a change to a scope."""
        return {scope.name} if scope.kind is ScopeKind.GROUP else self._held_by.pop(scope, set())
