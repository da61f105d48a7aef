"""Letting tasks into the queue: a task is released when nothing holds it back any longer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from taskmill.ports import Effects, Released
from taskmill.store.sqlite.connection import Connection
from taskmill.store.sqlite.json_sql import encoded, one
from taskmill.store.sqlite.queries import load

SQL = load("endings.sql")

_decode_released = msgspec.json.Decoder(list[Released]).decode


def release(connection: Connection, ids: Sequence[int], now: int, effects: Effects) -> list[int]:
    """Release those of the blocked tasks that nothing blocks now; returns which."""
    if not ids:
        return []
    found = _decode_released(one(connection, SQL["releasable"], encoded(ids)))
    released = [task.id for task in found]
    if released:
        connection.execute(SQL["release"], (encoded(released), now))
        for task in found:
            is_due = task.due_at is None or task.due_at <= now
            effects.released.append(msgspec.structs.replace(task, due_at=None) if is_due else task)
    return released


def note_queued(connection: Connection, ids: Sequence[int], effects: Effects) -> None:
    """These tasks are in the queue again."""
    if ids:
        effects.released += _decode_released(one(connection, SQL["in_queue"], encoded(ids)))
