"""Letting tasks into the queue: a task is released when nothing holds it back any longer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from taskmill.ports import Effects, Released
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.json_sql import decode_ids, decode_pairs, encoded, one
from taskmill.store.sql.statements import SQL

_decode_released = msgspec.json.Decoder(list[Released]).decode


def release(connection: Connection, ids: Sequence[int], now: int, effects: Effects) -> list[int]:
    """Release those of the blocked tasks that nothing blocks now; returns which."""
    if not ids:
        return []
    let_in_now = set(let_siblings_in(connection, ids, now, effects))
    return [*let_in_now.intersection(ids), *_release(connection, ids, now, effects)]


def _release(connection: Connection, ids: Sequence[int], now: int, effects: Effects) -> list[int]:
    found = _decode_released(one(connection, SQL["releasable"], encoded(ids)))
    released = [task.id for task in found]
    if released:
        connection.execute(SQL["release"], (encoded(released), now))
        for task in found:
            is_due = task.due_at is None or task.due_at <= now
            effects.released.append(msgspec.structs.replace(task, due_at=None) if is_due else task)
    return released


def let_siblings_in(connection: Connection, ids: Sequence[int], now: int, effects: Effects) -> list[int]:
    """Something about these tasks has changed: as many of their siblings enter the queue as may be there."""
    parents = decode_pairs(one(connection, SQL["capped_parents"], encoded(list(ids))))
    return [id for parent in parents for id in let_in(connection, *parent, now, effects)]


def let_in(connection: Connection, parent_id: int, max_children: int, now: int, effects: Effects) -> list[int]:
    """Let as many children of a parent into the queue as may be there; returns which."""
    ids = decode_ids(one(connection, SQL["let_in"], parent_id, max_children))
    return unhold(connection, ids, now, effects)


def unhold(connection: Connection, ids: Sequence[int], now: int, effects: Effects) -> list[int]:
    """These children need not wait for their siblings any longer; returns which of them are released by that."""
    if not ids:
        return []
    connection.execute(SQL["unhold"], (encoded(ids),))
    return _release(connection, ids, now, effects)


def promote(connection: Connection, now: int, most: int, effects: Effects) -> None:
    """Let tasks that are due into the queue, at most ``most``.

    The effects name their places, so that no lane has to be read again for them.
    """
    if ids := decode_ids(one(connection, SQL["due"], now, most)):
        connection.execute(SQL["promote"], (encoded(ids),))
        note_queued(connection, ids, effects)


def note_queued(connection: Connection, ids: Sequence[int], effects: Effects) -> None:
    """These tasks are in the queue again."""
    if ids:
        effects.released += _decode_released(one(connection, SQL["in_queue"], encoded(ids)))
