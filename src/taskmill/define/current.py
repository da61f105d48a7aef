"""The task that the running code belongs to, in a context variable: on the event loop, in threads and in processes.

The variable holds a :class:`CurrentTask`, which costs nothing to set. The record is built on request.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from taskmill.model.records import TaskRecord

if TYPE_CHECKING:
    from taskmill.core.logs import AttemptFields
    from taskmill.model.attempt import StopReason
    from taskmill.model.task import StoredTrace


class CurrentTask(Protocol):
    """The attempt that the running code belongs to."""

    @property
    def task(self) -> AttemptFields: ...

    @property
    def trace(self) -> StoredTrace | None: ...

    @property
    def stop_reason(self) -> StopReason | None: ...

    def record(self) -> TaskRecord: ...


current: ContextVar[CurrentTask | None] = ContextVar("taskmill_current_task", default=None)


def current_task() -> TaskRecord | None:
    """Return the record of the task whose handler, hook or middleware calls this; ``None`` outside of tasks."""
    running = current.get()
    return None if running is None else running.record()


_FIELDS = ("task_id", "task_type", "attempt", "group")


class TaskLogFilter(logging.Filter):
    """Adds ``task_id``, ``task_type``, ``attempt`` and ``group`` of the current task to log records.

    Add it to a logging handler. Outside of tasks all four are ``None``. Records that are already about a task, such as
    those of the logger ``taskmill.task``, keep what they have.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        running = current.get()
        task = None if running is None else running.task
        given = record.__dict__
        if task is None or given.get("task_id", task.id) != task.id:
            values: tuple[object, ...] = (None, None, None, None)
        else:
            values = (task.id, task.type, task.attempt, task.group)
        for name, value in zip(_FIELDS, values, strict=True):
            given.setdefault(name, value)
        return True
