"""Looking up a key: the task that holds it, and the task that has given it up but has not ended."""

from __future__ import annotations

from taskmill.store.sql.connection import Connection
from taskmill.store.sql.statements import SQL


def holder(connection: Connection, type: str, key: str | None) -> int | None:
    return _id(connection, "key_holder", type, key)


def stopper(connection: Connection, type: str, key: str | None) -> int | None:
    """Return the task that must end before another task with the key may start."""
    return _id(connection, "key_stopper", type, key)


def _id(connection: Connection, statement: str, type: str, key: str | None) -> int | None:
    row = None if key is None else connection.execute(SQL[statement], (type, key)).fetchone()
    return None if row is None else row[0]
