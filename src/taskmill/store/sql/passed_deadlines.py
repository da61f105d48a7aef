"""What has expired and was not moved to history yet: everyone who looks sees it as ended (docs/decisions/0030).

Nothing is asked of the tasks while no deadline has passed, which one look at the index of deadlines tells.
"""

from __future__ import annotations

import re

from taskmill.policy.standstill import owed_at_most
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.json_sql import one
from taskmill.store.sql.rows import View
from taskmill.store.sql.statements import SQL

_WORD = re.compile(r"\{(now|owed)\}")


def at(text: str, view: View) -> tuple[str, list[int]]:
    """Make parameters of the moments in a text: the server keeps what it has prepared, so no instant is part of it."""
    values = {"now": view.now, "owed": owed_at_most(view.rules.controls, view.now)}
    return _WORD.sub("?", text), [values[word] for word in _WORD.findall(text)]


def are_there(connection: Connection, view: View) -> bool:
    """True if any task has expired and was not moved to history."""
    controls = view.rules.controls
    if not controls.pauses and not controls.ended_pauses:
        first = one(connection, SQL["next_expiry"])
        return first is not None and first <= view.now
    text, moments = at(connection.text(SQL["has_expired"]), view)
    return bool(one(connection, text, *moments))


def with_history(connection: Connection, view: View) -> tuple[str, list[int]]:
    """What to put before a statement about history so that it sees such tasks there, with its parameters."""
    if not are_there(connection, view):
        return "", []
    return at(connection.text(SQL["with_expired"]) + "\n", view)


def shown_status(connection: Connection, view: View) -> tuple[str, list[int]]:
    """The status, or the ending, of an active row as it is shown, with its parameters; most often just the column."""
    controls = view.rules.controls
    if not controls.pauses and not controls.ended_pauses and not are_there(connection, view):
        return "status", []
    return at(connection.text(SQL["shown_status"]), view)
