"""Writing the rows of new tasks."""

from __future__ import annotations

from collections.abc import Sequence

from taskmill.model.stages import NewTask
from taskmill.store.sqlite.connection import Connection
from taskmill.store.sqlite.json_sql import encoded
from taskmill.store.sqlite.queries import load

SQL = load("inserting.sql")


def insert_rows(connection: Connection, tasks: Sequence[NewTask]) -> int:
    """Write the rows; returns the id of the first, the others follow it."""
    statement = "insert_kin" if any(task.kin is not None for task in tasks) else "insert"
    last_id = connection.execute(SQL[statement], (encoded(tasks),)).lastrowid or 0
    first_id = last_id - len(tasks) + 1
    if any(task.tags for task in tasks):
        connection.execute(SQL["insert_tags"], (first_id, last_id))
    return first_id
