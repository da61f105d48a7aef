"""The records of tasks that users read: active tasks, ended tasks, and the graph of connected tasks."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from taskmill.model.io_budget import IoBudget
from taskmill.model.progress import TaskProgress
from taskmill.model.status import Ending, EndingWord, ErrorKind, Status, StatusWord


class AttemptError(msgspec.Struct, frozen=True):
    """What went wrong in one attempt."""

    attempt: int
    at: datetime
    """When it was recorded: at the end of the attempt or, for a crash, when the crash was found."""
    kind: ErrorKind
    error: str
    traceback: str | None
    """The traceback from the handler's own frame on, at most 16 KiB; ``None`` if there is none, as after a crash."""
    node: str | None
    """The node that ran the attempt: host and process; ``None`` if unknown."""
    duration: timedelta | None
    """How long the attempt took; ``None`` if unknown."""


class ErrorGroup(msgspec.Struct, frozen=True):
    """Errors of one task type with the same exception class, raised in the same place."""

    type: str
    exception: str
    """The name of the exception class; the kind of the error, such as ``crashed``, if there was no exception."""
    location: str | None
    """The innermost frame of the program's own code, such as ``photos.py:31 in resize``."""
    count: int
    """The number of failed attempts."""
    first_at: datetime
    last_at: datetime
    sample_ids: tuple[int, ...]
    """At most five of the tasks, the latest failure first."""
    dead_letters: int = 0
    """The number of dead letters whose last error is of this group; ``retry_where`` returns them to the queue."""


class _Described(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    type: str
    domain: str
    key: str | None
    label: str | None
    group: str
    priority: int
    effective_priority: int
    payload: Mapping[str, Any]
    tags: Mapping[str, str]
    attempt: int
    retries: int
    created_at: datetime
    run_at: datetime | None
    expires_at: datetime | None
    started_at: datetime | None
    parent_id: int | None
    io: IoBudget | None
    progress: TaskProgress | None
    last_error: str | None
    errors: tuple[AttemptError, ...] = ()
    """The errors of its attempts, oldest first, at most the last 20."""


class TaskRecord(_Described, frozen=True, kw_only=True):
    """An active task."""

    status: Status

    @property
    def state(self) -> StatusWord:
        """The status, as a lower-case string."""
        return self.status.value


class HistoryRecord(_Described, frozen=True, kw_only=True):
    """A task that ended."""

    ending: Ending
    ended_at: datetime
    duration: timedelta | None
    result: Any
    error: str | None
    actual_io: IoBudget | None

    @property
    def state(self) -> EndingWord:
        """The ending, as a lower-case string."""
        return self.ending.value


def why_it_ended(record: HistoryRecord) -> str | None:
    """Return why a task did not complete, in words; ``None`` if its record does not say.

    Tasks that expire, are cancelled or are superseded store no error.
    """
    if record.error:
        return record.error
    match record.ending:
        case Ending.EXPIRED if record.expires_at is not None and record.expires_at <= record.ended_at:
            again = " again" if record.attempt else ""
            return f"it did not start{again} before its deadline, {record.expires_at:%Y-%m-%d %H:%M:%S} UTC"
        case Ending.EXPIRED:
            return "it expired together with its parent"
        case Ending.CANCELLED if record.parent_id is not None:
            return "it was cancelled, or its parent was stopped"
        case Ending.CANCELLED:
            return "it was cancelled" if record.attempt else "it was cancelled before it started"
        case Ending.SUPERSEDED:
            return "another task has replaced it"
        case _:
            return None


def how_it_ended(record: HistoryRecord) -> str:
    """Return text such as ``ended as failed: no such file``."""
    why = why_it_ended(record)
    return f"ended as {record.ending}: {why}" if why else f"ended as {record.ending}"


class TypeStats(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of a task type, over all its ended tasks, pruned ones included."""

    count: int
    completed: int
    failed: int
    failure_rate: float
    avg_duration: timedelta | None
    avg_io: IoBudget | None = None


class Dependency(NamedTuple):
    """Task ``task_id`` depends on task ``on_id``; ``open`` is True while ``task_id`` still waits."""

    task_id: int
    on_id: int
    open: bool


class TaskGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks connected to one task, directly or not: parents, children, dependencies and dependents.

    ``tasks`` maps ids to records, active or ended. Tasks pruned from history are missing.
    """

    tasks: Mapping[int, TaskRecord | HistoryRecord]
    dependencies: Sequence[Dependency]

    def children(self, id: int) -> list[int]:
        """Return the children of a task, in the order of ``tasks``."""
        return [task.id for task in self.tasks.values() if task.parent_id == id]
