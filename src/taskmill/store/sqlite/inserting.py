"""Writing the rows of new tasks."""

from __future__ import annotations

from collections.abc import Sequence

from taskmill.model.stages import NewTask
from taskmill.model.status import Status
from taskmill.store.sqlite.connection import Connection
from taskmill.store.sqlite.json_sql import encoded
from taskmill.store.sqlite.queries import load

SQL = load("inserting.sql")


def insert_rows(connection: Connection, tasks: Sequence[NewTask]) -> int:
    """Write the rows; returns the id of the first, the others follow it."""
    plain = [(task.type, task.group, task.priority, task.payload, task.created_at) for task in tasks if _is_plain(task)]
    if len(plain) == len(tasks):
        return (connection.execute(SQL["insert_plain"], (encoded(plain),)).lastrowid or 0) - len(tasks) + 1
    statement = "insert" if all(task.kin is None for task in tasks) else "insert_kin"
    last_id = connection.execute(SQL[statement], (encoded(tasks),)).lastrowid or 0
    first_id = last_id - len(tasks) + 1
    if any(task.tags for task in tasks):
        connection.execute(SQL["insert_tags"], (first_id, last_id))
    return first_id


def _is_plain(task: NewTask) -> bool:
    return (
        task.key is None
        and task.kin is None
        and task.status is Status.PENDING
        and task.expires_at is None
        and task.tags is None
        and task.label is None
        and task.overrides is None
        and task.ttl_ms is None
        and task.due_at is None
        and task.gate_id is None
        and task.stop is None
        and task.queued_at == task.created_at
    )
