"""Describe groups and rate limits in a snapshot."""

from __future__ import annotations

from collections.abc import Collection

from taskmill.model.controls import Scope, ScopeKind
from taskmill.model.durations import from_ms
from taskmill.model.explanation import GroupLoad
from taskmill.model.snapshot import GroupSnapshot, RateSnapshot
from taskmill.policy.explaining import allocated, by_group
from taskmill.policy.rates import full_bucket, permits_at
from taskmill.policy.rules import Rules
from taskmill.policy.shares import NO_SHARE


def groups_of(load: GroupLoad, rules: Rules, now: int, unknown_types: Collection[str]) -> dict[str, GroupSnapshot]:
    """Return every group with work or settings of its own. Tasks without a handler anywhere get no share."""
    busy, pending = by_group(load.running), by_group(load.waiting)
    shares = allocated(load.running, load.waiting, rules, now, unknown_types)
    pauses = rules.paused(ScopeKind.GROUP, now)
    return {
        name: GroupSnapshot(
            name=name,
            weight=settings.weight,
            cap=settings.cap,
            min_slots=settings.min_slots,
            rate=settings.rate,
            slots=shares.get(name, NO_SHARE).slots,
            running=busy[name],
            pending=pending[name],
            paused=name in pauses,
            paused_until=None if until is None else from_ms(until),
            next_priority=load.next_priority.get(name),
        )
        for name in sorted({*busy, *pending, *rules.named_groups, *pauses})
        for settings, until in [(rules.group(name), pauses.get(name))]
    }


def rates_of(rules: Rules, now: int) -> list[RateSnapshot]:
    scopes = {
        *(Scope(ScopeKind.GROUP, name) for name in rules.named_groups),
        *(Scope(ScopeKind.TYPE, name) for name in rules.declared.rates),
        *rules.controls.changes,
        *rules.controls.buckets,
    }
    return [
        RateSnapshot(
            kind=scope.kind,
            name=scope.name,
            rate=rate,
            permits=permits_at(rules.controls.buckets.get(scope) or full_bucket(rate, now), rate, now),
        )
        for scope in sorted(scopes)
        if scope.kind in (ScopeKind.GROUP, ScopeKind.TYPE) and (rate := rules.rate(scope)) is not None
    ]
