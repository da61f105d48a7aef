"""The settings that govern dispatch: those that the program declares, and those changed at run time.

``Declared`` holds the settings in the code of the dispatching program. ``Controls`` holds the durable changes that any
process made at run time. :mod:`taskmill.policy.rules` combines the two.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from taskmill.model.settings import Aging, Group, Priority, RateLimit


class ScopeKind(StrEnum):
    """The kinds of scopes that can be paused, limited or tuned."""

    SCHEDULER = "scheduler"
    DOMAIN = "domain"
    GROUP = "group"
    TYPE = "type"


class Scope(NamedTuple):
    """One scheduler, domain, group or task type."""

    kind: ScopeKind
    name: str = ""


EVERYTHING = Scope(ScopeKind.SCHEDULER)


class Declared(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings in the code of the dispatching program."""

    max_concurrency: int = 8
    default_group: Group = Group()
    groups: Mapping[str, Group] = msgspec.field(default_factory=dict[str, Group])
    domain_caps: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    rates: Mapping[str, RateLimit] = msgspec.field(default_factory=dict[str, RateLimit])
    """The rate limit of each task type."""
    aging: Aging | None = None
    preempt_at: int = int(Priority.CRITICAL)


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings of a group, domain or task type that were changed at run time; unset ones are as declared."""

    weight: float | UnsetType = UNSET
    cap: int | UnsetType | None = UNSET
    min_slots: int | UnsetType = UNSET
    rate: RateLimit | UnsetType | None = UNSET


NO_CHANGE = Change()


class Pause(msgspec.Struct, frozen=True, array_like=True):
    """A pause that began at ``since``. It ends at ``until``, or when it is resumed if that is None."""

    since: int
    until: int | None = None

    def holds(self, now: int) -> bool:
        return self.until is None or self.until > now


class Bucket(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The level of a token bucket at ``at``; one permit costs ``unit`` (:mod:`taskmill.policy.rates`)."""

    level: int
    at: int
    unit: int


class Controls(msgspec.Struct, frozen=True):
    """The stored settings. ``version`` grows with each change except changes of buckets."""

    version: int = -1
    declared: Declared | None = None
    """The declared settings of the last dispatcher."""
    changes: Mapping[Scope, Change] = msgspec.field(default_factory=dict[Scope, Change])
    pauses: Mapping[Scope, Pause] = msgspec.field(default_factory=dict[Scope, Pause])
    ended_pauses: Sequence[tuple[Scope, Pause]] = ()
    """Ended pauses whose time has not been given back to all their tasks yet."""
    buckets: Mapping[Scope, Bucket] = msgspec.field(default_factory=dict[Scope, Bucket])


NO_CONTROLS = Controls()
