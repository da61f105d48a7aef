"""Moving tasks that are past their deadlines to history."""

from __future__ import annotations

import msgspec

from taskmill.model.status import Ending
from taskmill.ports import Effects
from taskmill.store.sql import families
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.endings import end_tasks
from taskmill.store.sql.json_sql import one
from taskmill.store.sql.rows import EndingRow
from taskmill.store.sql.statements import SQL

_decode_expired = msgspec.json.Decoder(list[tuple[int, bool, bool]], strict=False).decode


def expire(connection: Connection, now: int, limit: int, effects: Effects) -> None:
    """End tasks that waited too long, and their waiting descendants; start those over that are to run once more."""
    found = _decode_expired(one(connection, SQL["expired"], now, limit))
    again = {id: has_children for id, has_children, runs_again in found if runs_again}
    found = [row for row in found if row[0] not in again]
    families.start_over(connection, [id for id, has_children in again.items() if not has_children], now, effects)
    rows = {id: EndingRow(id, Ending.EXPIRED, now, None, None, None) for id, _, _ in found}
    if parents := [id for id, has_children, _ in found if has_children]:
        for row in families.expire_families(connection, parents, now, effects):
            rows.setdefault(row.id, row)
    for id, has_children in again.items():
        if has_children:
            # Its children belong to the run that is over; they end before it starts over.
            outcome = (Ending.EXPIRED, None, None, None)
            for row in families.fail(connection, id, outcome, now, effects):
                rows.setdefault(row.id, row)
    end_tasks(connection, list(rows.values()), now, effects)
