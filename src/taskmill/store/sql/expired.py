"""Expired tasks as readers see them: ended at once, although only the next turn moves them (docs/decisions/0030).

While no deadline has passed, reading costs one lookup in the index of deadlines.
"""

from __future__ import annotations

import re

from taskmill.policy.paused_time import owed_at_most
from taskmill.store.sql.connection import Connection, one
from taskmill.store.sql.rows import View
from taskmill.store.sql.statements import SQL

_WORD = re.compile(r"\{(now|owed)\}")


def at_present(text: str, view: View) -> tuple[str, list[int]]:
    """Replace ``{now}`` and ``{owed}`` in a text by parameters, and return it with their values.

    Literal times would give a new text, and so a new prepared statement, for each call.
    """
    values = {"now": view.now, "owed": owed_at_most(view.rules.controls, view.now)}
    return _WORD.sub("?", text), [values[word] for word in _WORD.findall(text)]


def any_expired(connection: Connection, view: View) -> bool:
    """True if any task has expired and is not in history yet."""
    controls = view.rules.controls
    if not controls.pauses and not controls.ended_pauses:
        first = one(connection, SQL["next_expiry"])
        return first is not None and first <= view.now
    text, moments = at_present(connection.text(SQL["has_expired"]), view)
    return bool(one(connection, text, *moments))


def with_expired_history(connection: Connection, view: View) -> tuple[str, list[int]]:
    """Return a WITH clause that adds expired tasks to history, with its parameters; empty if there are none."""
    if not any_expired(connection, view):
        return "", []
    return at_present(connection.text(SQL["with_expired"]) + "\n", view)


def shown_status(connection: Connection, view: View) -> tuple[str, list[int]]:
    """Return the expression for the shown status of an active row, with its parameters; usually just the column."""
    controls = view.rules.controls
    if not controls.pauses and not controls.ended_pauses and not any_expired(connection, view):
        return connection.text(SQL["plain_status"]), []
    return at_present(connection.text(SQL["shown_status"]), view)
