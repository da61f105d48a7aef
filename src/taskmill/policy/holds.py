"""May a waiting task start, and if not, why: every rule that holds a task back, written once.

The picker, ``explain``, the hold metric and the admission of starts in a cluster ask these functions. Each rule returns
a :class:`Held` with its numbers, or None. The callers differ only in where their numbers come from, which is what
:class:`Usage` stands for: the counters of the dispatch loop, a snapshot of the store, or the totals of a cluster.

A task may start when none of these holds it: a pause, a missing handler, a concurrency limit, a rate limit, pressure,
IO, the share of its group, the number of slots. What holds a single task before it is in the queue at all (it is not
due, it depends on others) is not decided here but stored with the task.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from taskmill.model.controls import EVERYTHING, Scope, ScopeKind
from taskmill.model.explanation import Reason
from taskmill.model.settings import RateLimit
from taskmill.model.type_name import domain_of
from taskmill.policy.aging import is_urgent
from taskmill.policy.rules import Rules


class Held(NamedTuple):
    """A rule that holds a task back, with its numbers."""

    reason: Reason
    scope: Scope = EVERYTHING
    """The group, domain or task type whose limit it is."""
    used: int = 0
    """How many slots are in use."""
    limit: int = 0
    """How many may be."""


class Usage(Protocol):
    """What is in use now."""

    def knows(self, type: str, /) -> bool:
        """True if a scheduler that runs tasks has a handler for the type."""
        ...

    def in_group(self, group: str, /) -> int:
        """Return how many slots a group uses."""
        ...

    def in_domain(self, domain: str, /) -> int:
        """Return how many slots a domain uses."""
        ...

    def permits(self, scope: Scope, limit: RateLimit, /) -> int:
        """Return how many tokens a rate limit has left."""
        ...


def at_cap(reason: Reason, scope: Scope, used: int, cap: int | None) -> Held | None:
    """Return the hold of a concurrency limit that is used up."""
    return None if cap is None or used < cap else Held(reason, scope, used, cap)


def out_of_slots(taken: int, slots: int) -> Held | None:
    """Return the hold of the slots, if all are taken."""
    return None if taken < slots else Held("slots", EVERYTHING, taken, slots)


def passes_shares(effective: int, rules: Rules) -> bool:
    """True if a task of this effective priority is urgent enough to start beyond the share of its group."""
    return effective <= rules.declared.preempt_at or is_urgent(rules.declared.aging, effective)


def beyond_share(group: str, running: int, share: int) -> Held | None:
    """Return the hold of a group's share of the slots, if the group has used it up."""
    return None if running < share else Held("share", Scope(ScopeKind.GROUP, group), running, share)


def holds_on_group(group: str, rules: Rules, usage: Usage) -> Iterator[Held]:
    """Yield what holds back every task of a group: a pause, its rate limit, its concurrency limit."""
    settings = rules.group(group)
    if settings.rate is None and settings.cap is None and not rules.controls.pauses:
        return
    scope = Scope(ScopeKind.GROUP, group)
    if rules.is_paused(scope):
        yield Held("group_paused", scope)
    if settings.rate is not None and not usage.permits(scope, settings.rate):
        yield Held("group_rate", scope)
    if (held := at_cap("group_cap", scope, usage.in_group(group), settings.cap)) is not None:
        yield held


def holds_on_type(type: str, rules: Rules, usage: Usage) -> Iterator[Held]:
    """Yield what holds back every task of a type, whatever its group: a pause or a limit of its domain, no handler,
    its rate limit."""
    limits = rules.limits_on_type(type)
    if limits is not None and limits.is_paused:
        yield Held("domain_paused", limits.domain)
    if not usage.knows(type):
        yield Held("no_handler", Scope(ScopeKind.TYPE, type))
    if limits is None:
        return
    if (held := at_cap("domain_cap", limits.domain, usage.in_domain(limits.domain.name), limits.cap)) is not None:
        yield held
    if limits.rate is not None and not usage.permits(limits.type, limits.rate):
        yield Held("type_rate", limits.type)


def scopes_of(group: str, type: str) -> tuple[Scope, Scope, Scope]:
    """Return the scopes whose limits concern a task."""
    return Scope(ScopeKind.GROUP, group), Scope(ScopeKind.DOMAIN, domain_of(type)), Scope(ScopeKind.TYPE, type)
