"""Describe cron tasks in a snapshot."""

from __future__ import annotations

from datetime import datetime, tzinfo

from taskmill.core.cron_port import CronRow
from taskmill.model.durations import from_ms
from taskmill.model.snapshot import Schedule
from taskmill.policy.cron.decisions import next_moment
from taskmill.policy.cron.expression import CronExpression


def pictured(row: CronRow, now: int, zone: tzinfo) -> Schedule:
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
    expression = CronExpression.parse(row.state.expression)
    if row.state.is_running:
        return expression.next(from_ms(now).astimezone(zone))
    return _at(next_moment(row.state, expression, zone), zone)


def _at(ms: int | None, zone: tzinfo) -> datetime | None:
    return None if ms is None else from_ms(ms).astimezone(zone)
