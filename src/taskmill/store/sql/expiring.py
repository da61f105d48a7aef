"""Expired tasks: readers see them as ended at once, and the next turn moves them to history (docs/decisions/0030).

While no deadline has passed, reading costs one lookup in the index of deadlines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from taskmill.model.commit import Commit
from taskmill.model.controls import Declared
from taskmill.model.status import Ending
from taskmill.policy.paused_time import owed_at_most
from taskmill.policy.rules import Rules
from taskmill.store.sql import controls, families, paused_time
from taskmill.store.sql.connection import Connection, decode_ids, encoded, one
from taskmill.store.sql.endings import end_tasks
from taskmill.store.sql.rows import EndingRow, View
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


_decode_expired = msgspec.json.Decoder(list[tuple[int, bool]], strict=False).decode


def expire(connection: Connection, now: int, limit: int, commit: Commit) -> None:
    """End at most ``limit`` tasks whose deadlines have passed, and their waiting descendants."""
    _end(connection, _decode_expired(one(connection, SQL["expired"], now, limit)), now, commit)


def expire_among(connection: Connection, ids: Sequence[int], now: int, commit: Commit) -> None:
    """End the given tasks that have expired, before the sweep reaches them."""
    late = decode_ids(one(connection, SQL["late"], encoded(list(ids)), now))
    if not late:
        return
    connection.be_alone()
    # Ended pauses may still owe these tasks time, which moves their deadlines.
    commit.pauses_ended += paused_time.end_pauses(connection, now)
    paused_time.settle(connection, late)
    view = View(Rules(Declared(), controls.read(connection)), now)
    text, moments = at_present(connection.text(SQL["expired_among"]), view)
    _end(connection, _decode_expired(one(connection, text, encoded(late), *moments)), now, commit)


def _end(connection: Connection, found: Sequence[tuple[int, bool]], now: int, commit: Commit) -> None:
    rows = {id: EndingRow(id, Ending.EXPIRED, now, None, None, None) for id, _ in found}
    if parents := [id for id, has_children in found if has_children]:
        for row in families.expire_families(connection, parents, now, commit):
            rows.setdefault(row.id, row)
    end_tasks(connection, list(rows.values()), now, commit)
