"""The overview: counts, throughput and times, running tasks, groups, pressure, errors, nodes and pauses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from taskmill import Activity, Ending, GroupSnapshot, HistoryRecord, Scheduler, Snapshot
from taskmill.web.backend import Backend, CheckedRequest
from taskmill.web.shapes import OverviewAnswer, Paused, RecentErrors

MOST_RUNNING = 100
MOST_GROUPS = 100
MOST_ERRORS = 10
HOUR_SECONDS = 3.0
"""How long the activity of the last hour is kept; each of its points is a minute."""
DAY_SECONDS = 30.0
YOUNG = {2: 24, 5: 30, 15: 45, 60: 60}
"""Periods of young histories in minutes, and the number of steps of each: 5, 10, 20 or 60 seconds long."""
FAILURES = (Ending.FAILED, Ending.DEAD_LETTER)


async def overview(backend: Backend, asked: CheckedRequest) -> OverviewAnswer:  # noqa: ARG001 - all pages are called alike
    reader = await backend.reader()
    snapshot = await backend.scheduler.snapshot()
    hour = await backend.activities.remembered("hour", HOUR_SECONDS, lambda: reader.activity("1h", steps=60))
    day = await backend.activities.remembered("day", DAY_SECONDS, lambda: reader.activity("1d", steps=48))
    failed = [record for ending in FAILURES for record in await reader.history(status=ending, limit=MOST_ERRORS)]
    latest = sorted((each for each in failed if each.ended_at >= hour.since), key=_ended_at, reverse=True)
    return OverviewAnswer(
        at=datetime.now(UTC),
        counts=snapshot.counts,
        running=backend.listed(snapshot.running[:MOST_RUNNING]),
        groups=busiest(snapshot, MOST_GROUPS),
        pressure=snapshot.pressure,
        unhandled=snapshot.unhandled,
        paused=paused(snapshot),
        nodes=snapshot.nodes,
        max_concurrency=snapshot.max_concurrency,
        is_shared=snapshot.is_shared,
        is_dispatching=snapshot.dispatching,
        has_dispatcher=snapshot.has_dispatcher,
        hour=hour,
        recent=await _recent(backend, reader, hour),
        day=day,
        errors=RecentErrors(
            count=sum(hour.ended.get(ending, 0) for ending in FAILURES),
            latest=backend.listed(latest[:MOST_ERRORS]),
        ),
    )


async def _recent(backend: Backend, reader: Scheduler, hour: Activity) -> Activity | None:
    """Return the shortest period that contains every ending in history; None if that is more than an hour."""
    first = next((point.at for point in hour.points if point.ended), None)
    if first is None or await reader.history(until=hour.since, limit=1):
        return None
    minutes = next(minutes for minutes in YOUNG if hour.until - first <= timedelta(minutes=minutes))
    period = f"{minutes}m"
    return await backend.activities.remembered(
        period, HOUR_SECONDS, lambda: reader.activity(period, steps=YOUNG[minutes])
    )


def _ended_at(record: HistoryRecord) -> tuple[datetime, int]:
    return record.ended_at, record.id


def paused(snapshot: Snapshot) -> Paused:
    return Paused(scheduler=snapshot.paused, groups=snapshot.paused_groups, domains=snapshot.paused_domains)


def busiest(snapshot: Snapshot, limit: int) -> list[GroupSnapshot]:
    """Return the groups with the most running, then the most waiting tasks."""
    return sorted(snapshot.groups.values(), key=lambda group: (-group.running, -group.pending, group.name))[:limit]
