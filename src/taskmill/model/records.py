"""The records of tasks that users read: active tasks, ended tasks, and the graph of connected tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from taskmill.model.attempt import TaskProgress
from taskmill.model.io_budget import IoBudget
from taskmill.model.status import Ending, EndingWord, Status, StatusWord


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


class TypeStats(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of a task type, over all its ended tasks, pruned ones included."""

    count: int
    completed: int
    failed: int
    failure_rate: float
    avg_duration: timedelta | None
    avg_io: IoBudget | None = None


class Dependency(NamedTuple):
    """``task_id`` depends on ``on_id``; ``open`` is true while it still waits for it."""

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
