"""Move expired tasks to history. Readers see them as ended before that (:mod:`taskmill.store.sql.expired`)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from taskmill.model.commit import Commit
from taskmill.model.controls import Declared
from taskmill.model.status import Ending
from taskmill.policy.rules import Rules
from taskmill.store.sql import controls, families, paused_time
from taskmill.store.sql.connection import Connection, decode_ids, encoded, one
from taskmill.store.sql.endings import end_tasks
from taskmill.store.sql.expired import at_present
from taskmill.store.sql.rows import EndingRow, View
from taskmill.store.sql.statements import SQL

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
