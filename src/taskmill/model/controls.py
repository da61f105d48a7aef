"""What governs dispatch besides the tasks themselves: what the program declares, and what was changed at run time.

``Declared`` is what the code of the dispatching program says; ``Controls`` are the durable changes made while it runs,
by any process. :mod:`taskmill.policy.rules` says what the two come to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from taskmill.model.aging import Aging
from taskmill.model.group import Group
from taskmill.model.priority import Priority
from taskmill.model.rate_limit import RateLimit


class ScopeKind(StrEnum):
    """What can be paused, limited or tuned as a whole."""

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
    """What the program that dispatches was written to do."""

    max_concurrency: int = 8
    default_group: Group = Group()
    groups: Mapping[str, Group] = msgspec.field(default_factory=dict[str, Group])
    domain_caps: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    rates: Mapping[str, RateLimit] = msgspec.field(default_factory=dict[str, RateLimit])
    """Per task type."""
    aging: Aging | None = None
    preempt_at: int = int(Priority.CRITICAL)


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was set at run time about a group, domain or task type; what is unset is as declared."""

    weight: float | UnsetType = UNSET
    cap: int | UnsetType | None = UNSET
    min_slots: int | UnsetType = UNSET
    rate: RateLimit | UnsetType | None = UNSET


NO_CHANGE = Change()


class Pause(msgspec.Struct, frozen=True, array_like=True):
    """Paused since an instant, and until another if it is set."""

    since: int
    until: int | None = None

    def holds(self, now: int) -> bool:
        return self.until is None or self.until > now


class Bucket(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What was in a token bucket at ``at``; a permit is ``unit`` of the level (:mod:`taskmill.policy.rates`)."""

    level: int
    at: int
    unit: int


class Controls(msgspec.Struct, frozen=True):
    """The durable part. ``version`` grows with each change but that of a bucket."""

    version: int = -1
    declared: Declared | None = None
    """What the last dispatcher was written to do."""
    changes: Mapping[Scope, Change] = msgspec.field(default_factory=dict[Scope, Change])
    pauses: Mapping[Scope, Pause] = msgspec.field(default_factory=dict[Scope, Pause])
    ended_pauses: Sequence[tuple[Scope, Pause]] = ()
    """Pauses that are over, and whose time was not given back to all of their tasks yet."""
    buckets: Mapping[Scope, Bucket] = msgspec.field(default_factory=dict[Scope, Bucket])


NO_CONTROLS = Controls()
