"""Cron tasks and recurring series: when they run next, how they went, and pauses of series."""

from __future__ import annotations

from datetime import timedelta

from taskmill import Schedule, Scheduler, TaskNotFound
from taskmill.cron import CronExpression
from taskmill.web.backend import Backend, CheckedRequest
from taskmill.web.problems import RequestRefused
from taskmill.web.shapes import MOST_LISTED, ChangedAnswer, ListQuery, ScheduleEntry, ScheduleListAnswer

RECENT = 5
_UNITS = (
    ("week", timedelta(weeks=1)),
    ("day", timedelta(days=1)),
    ("hour", timedelta(hours=1)),
    ("minute", timedelta(minutes=1)),
    ("second", timedelta(seconds=1)),
)


async def listed(backend: Backend, asked: CheckedRequest) -> ScheduleListAnswer:
    query: ListQuery = asked.query
    return await _list(backend, query.limit)


async def _list(backend: Backend, limit: int) -> ScheduleListAnswer:
    reader = await backend.reader()
    schedules = (await backend.scheduler.snapshot()).schedules
    return ScheduleListAnswer(
        schedules=[await _entry(backend, reader, each) for each in schedules[:limit]], total=len(schedules)
    )


async def _entry(backend: Backend, reader: Scheduler, schedule: Schedule) -> ScheduleEntry:
    recent = backend.listed(await reader.history(type=schedule.type, limit=RECENT))
    key = await _shown_key(backend, reader, schedule)
    name = schedule.cron if schedule.cron is not None else (key or schedule.type)
    return ScheduleEntry(
        id=f"series:{schedule.task_id}" if schedule.cron is None else f"cron:{schedule.cron}",
        kind="series" if schedule.cron is None else "cron",
        name=name,
        type=schedule.type,
        key=key,
        expression=schedule.expression,
        every=None if schedule.every is None else schedule.every.total_seconds(),
        words=_words(schedule),
        next_run=schedule.next_run,
        last_run=schedule.last_run or (recent[0].started_at if recent else None),
        last_outcome=schedule.last_outcome or (recent[0].state if recent else None),
        recent=recent,
        task_id=schedule.task_id,
        runs=schedule.runs,
        max_runs=schedule.max_runs,
        paused=schedule.paused,
    )


async def _shown_key(backend: Backend, reader: Scheduler, schedule: Schedule) -> str | None:
    """Return the key of a series as the record of its occurrence shows it."""
    if schedule.key is None or not backend.is_redacted or schedule.task_id is None:
        return schedule.key
    try:
        return backend.shown(await reader.get(schedule.task_id)).key
    except TaskNotFound:
        return None


def _words(schedule: Schedule) -> str:
    if schedule.expression is not None:
        return CronExpression.parse(schedule.expression).in_words()
    return "" if schedule.every is None else every(schedule.every)


def every(interval: timedelta) -> str:
    """Return an interval in words, in the largest unit that it is a whole number of: ``every 90 minutes``."""
    for unit, length in _UNITS:
        count, rest = divmod(interval, length)
        if count and not rest:
            return f"every {unit}" if count == 1 else f"every {count} {unit}s"
    return f"every {interval.total_seconds():g} seconds"


async def run(backend: Backend, asked: CheckedRequest) -> ChangedAnswer:
    kind, name = _kind_and_name(asked)
    if kind == "series":
        raise RequestRefused(409, "invalid_state", "only cron tasks can be run by hand; submit the task once more")
    return ChangedAnswer(ids=[(await backend.scheduler.run_cron(name)).id])


async def pause(backend: Backend, asked: CheckedRequest) -> ScheduleListAnswer:
    await backend.scheduler.pause_recurring(_series(asked))
    return await _list(backend, MOST_LISTED)


async def resume(backend: Backend, asked: CheckedRequest) -> ScheduleListAnswer:
    await backend.scheduler.resume_recurring(_series(asked))
    return await _list(backend, MOST_LISTED)


def _series(asked: CheckedRequest) -> int:
    kind, name = _kind_and_name(asked)
    if kind == "cron":
        raise RequestRefused(409, "invalid_state", "a cron task cannot be paused; pause its domain or its group")
    return int(name)


def _kind_and_name(asked: CheckedRequest) -> tuple[str, str]:
    kind, _, name = str(asked.path["schedule"]).partition(":")
    is_number = name.isascii() and name.isdigit() and len(name) <= 18
    if not name or kind not in ("cron", "series") or (kind == "series" and not is_number):
        raise RequestRefused(404, "not_found", "a schedule is written as cron:NAME or series:TASK")
    return kind, name
