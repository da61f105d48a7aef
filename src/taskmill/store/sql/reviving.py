"""Bringing dead letters back to the queue."""

from __future__ import annotations

from taskmill.errors import DuplicateTask
from taskmill.model.commit import Commit
from taskmill.model.task import Described
from taskmill.store.sql import cron, keys
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.describing import describe
from taskmill.store.sql.releasing import release
from taskmill.store.sql.statements import SQL


def revive(connection: Connection, id: int, now: int) -> Described | None:
    """Bring a dead letter back to the queue under its own id; return None if there is no such dead letter.

    The caller has to read the queue again, because siblings of the task may enter it as well.
    """
    row = connection.execute(SQL["dead_letter"], (id,)).fetchone()
    if row is None:
        return None
    type, group, duration_ms, key, cron_name = row
    holder = keys.holder(connection, type, key)
    if holder is not None:
        raise DuplicateTask(f"{type}: task {holder} holds the key {key!r} now", existing_id=holder)
    cron.rejoin(connection, id, cron_name, now)
    # A task that was asked to stop has freed its key, but must end before another task with that key starts.
    connection.execute(SQL["revive"], (id, now, keys.stopper(connection, type, key), cron_name))
    for statement in ("recount_child", "return_tags", "forget_ending_tags", "forget_ending"):
        connection.execute(SQL[statement], (id,))
    connection.execute(SQL["untally"], (type, group, "dead_letter", duration_ms))
    release(connection, [id], now, Commit())
    return describe(connection, [id])[0]
