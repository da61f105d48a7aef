"""Writing the rows of new tasks, and looking up the tasks that stand in the way of a new key."""

from __future__ import annotations

from collections.abc import Sequence

from taskmill.model.status import Status
from taskmill.model.task import Links, NewTask
from taskmill.store.sql.connection import Connection, encoded
from taskmill.store.sql.statements import SQL


def insert_rows(connection: Connection, tasks: Sequence[NewTask], first_id: int | None = None) -> int:
    """Write the rows and return the first of their consecutive ids; ``first_id`` is the planned one, if any."""
    statement, rows = _shortest(tasks)
    if first_id is None:
        connection.pass_over_lost_ids()
    first_id = connection.insert(SQL[statement], encoded(rows), len(tasks), first_id)
    if rows is tasks and any(task.tags for task in tasks):
        connection.execute(SQL["insert_tags"], (first_id, first_id + len(tasks) - 1))
    return first_id


def _shortest(tasks: Sequence[NewTask]) -> tuple[str, Sequence[object]]:
    """Return the shortest statement that can store these tasks, with its rows: each value costs time."""
    has_links = not all(task.links is None for task in tasks)
    if not all(_is_common(task) for task in tasks):
        return ("insert_links" if has_links else "insert"), tasks
    if any(task.key is not None or task.queued_at != task.created_at for task in tasks):
        return ("insert_links", tasks) if has_links else ("insert_keyed", [_keyed(task) for task in tasks])
    if not has_links:
        return "insert_plain", [(task.type, task.group, task.priority, task.payload, task.created_at) for task in tasks]
    return "insert_children", [
        (task.type, task.group, task.priority, task.payload, task.created_at, task.links and task.links.parent_id)
        for task in tasks
    ]


def _keyed(task: NewTask) -> tuple[object, ...]:
    return (
        task.type,
        task.key,
        task.group,
        task.priority,
        task.payload,
        task.created_at,
        task.queued_at,
        task.replaced,
        task.place_id,
    )


def _is_common(task: NewTask) -> bool:
    """True if the task has only common options, which include a key and a parent."""
    return (
        (task.links is None or _is_just_a_child(task.links))
        and task.status is Status.PENDING
        and task.expires_at is None
        and task.tags is None
        and task.io is None
        and task.label is None
        and task.overrides is None
        and task.ttl_ms is None
        and task.due_at is None
        and task.gate_id is None
        and task.stop is None
    )


def _is_just_a_child(links: Links) -> bool:
    return (
        links.series_id is None
        and links.on_dependency_failure is None
        and links.on_parent_expiry is None
        and not links.held
    )


def key_holder(connection: Connection, type: str, key: str | None) -> int | None:
    """Return the active task that has the key."""
    return _id(connection, "key_holder", type, key)


def key_stopper(connection: Connection, type: str, key: str | None) -> int | None:
    """Return the task that must end before another task with the key may start."""
    return _id(connection, "key_stopper", type, key)


def _id(connection: Connection, statement: str, type: str, key: str | None) -> int | None:
    row = None if key is None else connection.execute(SQL[statement], (type, key)).fetchone()
    return None if row is None else row[0]
