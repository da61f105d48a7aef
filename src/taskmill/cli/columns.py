"""The columns of ``taskmill ls``: the text of each cell, and the orders in which a page can be sorted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from taskmill import HistoryRecord, Status, TaskRecord
from taskmill.cli import cells, text
from taskmill.cli.orphans import PROCESS_IS_GONE

Record = TaskRecord | HistoryRecord


class FoundTasks(NamedTuple):
    """A page of tasks, and what is known about some of them."""

    records: Sequence[Record]
    next_page: str = ""
    """The option that lists the next page; empty if there is none."""
    unhandled: Collection[str] = ()
    """The task types without a handler."""
    left: Collection[int] = ()
    """The running tasks whose process is gone."""


def _took(record: Record) -> str:
    took = record.duration if isinstance(record, HistoryRecord) else None
    return "-" if took is None else text.duration(took)


def _when(record: Record, listed: FoundTasks) -> str:
    """Return how long it has run, when it is due, when it ended, or when it was submitted."""
    if isinstance(record, HistoryRecord):
        return text.ago(record.ended_at)
    if record.id in listed.left:
        return PROCESS_IS_GONE
    if record.status is Status.RUNNING and record.started_at is not None:
        return f"for {text.duration(datetime.now(UTC) - record.started_at)}"
    if record.status is Status.SCHEDULED and record.run_at is not None:
        return text.ago(record.run_at)
    return text.ago(record.created_at)


def _about(record: Record, listed: FoundTasks) -> str:
    """Return a note if the type has no handler, then the task's subject with its progress or its last error."""
    error = record.error if isinstance(record, HistoryRecord) else record.last_error
    parts = ["(no handler)" if isinstance(record, TaskRecord) and record.type in listed.unhandled else ""]
    if isinstance(record, TaskRecord) and record.status is Status.RUNNING and record.progress is not None:
        parts += [text.progress(record.progress), text.subject(record)]
    else:
        parts += [text.subject(record), text.first_line(error) if error else ""]
    return " · ".join(filter(None, parts))


COLUMNS: Mapping[str, Callable[[Record, FoundTasks], str]] = {
    "id": lambda record, _: str(record.id),
    "status": lambda record, _: record.state,
    "ending": lambda record, _: record.state,
    "type": lambda record, _: record.type,
    "group": lambda record, _: record.group or "-",
    "priority": lambda record, _: text.priority(record),
    "attempts": lambda record, _: str(record.attempt),
    "retries": lambda record, _: str(record.retries),
    "took": lambda record, _: _took(record),
    "when": _when,
    "ended": lambda record, _: text.ago(record.ended_at) if isinstance(record, HistoryRecord) else "-",
    "submitted": lambda record, _: text.ago(record.created_at),
    "key": lambda record, _: record.key or "-",
    "tags": lambda record, _: text.tags(record.tags) or "-",
    "parent": lambda record, _: "-" if record.parent_id is None else str(record.parent_id),
    "about": _about,
}
ORDERS: Mapping[str, Callable[[Record], Any]] = {
    "id": lambda record: record.id,
    "type": lambda record: cells.natural(record.type),
    "group": lambda record: cells.natural(record.group),
    "about": lambda record: cells.natural(text.subject(record)),
    "priority": lambda record: record.effective_priority,
    "attempts": lambda record: -record.attempt,
    "submitted": lambda record: record.created_at,
}
