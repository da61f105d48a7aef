"""Describe groups, rate limits, cron tasks and nodes in a snapshot."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from taskmill.model.controls import Scope, ScopeKind
from taskmill.model.durations import from_ms
from taskmill.model.snapshot import GroupSnapshot, NodeSnapshot, RateSnapshot, Schedule
from taskmill.policy.explaining import allocated, by_group
from taskmill.policy.rates import full_bucket, permits_at
from taskmill.policy.shares import NO_SHARE

if TYPE_CHECKING:
    from taskmill.core.cron_port import CronRow
    from taskmill.model.cluster import NodeAtWork
    from taskmill.model.explanation import GroupLoad
    from taskmill.policy.rules import Rules


def unhandled_of(load: GroupLoad, unknown_types: Collection[str]) -> dict[str, int]:
    """Return the number of tasks that wait to run, for each type that has no handler anywhere."""
    return {type: number for type, number in sorted(load.unstarted.items()) if type in unknown_types}


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


def cron_schedule(row: CronRow, now: int, zone: tzinfo) -> Schedule:
    """Return the schedule of a cron task, with instants in ``zone``."""
    state = row.state
    return Schedule(
        type=row.type,
        key=None,
        every=None,
        next_run=_next_run(row, now, zone),
        task_id=row.task_id,
        runs=row.runs,
        max_runs=None,
        paused=False,
        cron=state.name,
        expression=state.expression,
        last_run=_at(state.last_attempt_at, zone),
        last_outcome=state.last_outcome,
    )


def _next_run(row: CronRow, now: int, zone: tzinfo) -> datetime | None:
    # Imported here, because most stores have no cron tasks.
    from taskmill.policy.cron.decisions import next_moment
    from taskmill.policy.cron.expression import CronExpression

    expression = CronExpression.parse(row.state.expression)
    if row.state.is_running:
        return expression.next(from_ms(now).astimezone(zone))
    return _at(next_moment(row.state, expression, zone), zone)


def _at(ms: int | None, zone: tzinfo) -> datetime | None:
    return None if ms is None else from_ms(ms).astimezone(zone)


def node_snapshot(node: NodeAtWork) -> NodeSnapshot:
    return NodeSnapshot(
        id=node.id,
        name=node.name,
        is_here=node.is_here,
        is_alive=node.is_alive,
        since=from_ms(node.since),
        seen_at=from_ms(node.seen_at),
        slots=node.slots,
        running=tuple(node.running),
    )
