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

_decode_expired = msgspec.json.Decoder(list[tuple[int, bool]], strict=False).decode


def expire(connection: Connection, now: int, limit: int, effects: Effects) -> None:
    """End tasks that waited too long, and their waiting descendants."""
    found = _decode_expired(one(connection, SQL["expired"], now, limit))
    rows = {id: EndingRow(id, Ending.EXPIRED, now, None, None, None) for id, _ in found}
    if parents := [id for id, has_children in found if has_children]:
        for row in families.expire_families(connection, parents, now, effects):
            rows.setdefault(row.id, row)
    end_tasks(connection, list(rows.values()), now, effects)
