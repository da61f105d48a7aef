"""Reading which tasks a task has replaced, and which have replaced it.

A replacement has the key of the task that it replaces, and between the two no other task had it. So the task that
replaced a superseded one is the next task with its type and key; no table stores that.
"""

from __future__ import annotations

from itertools import takewhile

import msgspec

from taskmill.store.sql.connection import Connection, one
from taskmill.store.sql.statements import SQL

MOST_REPLACED = 100
"""The largest number of tasks with the same key to look at, in each direction."""

_decode_same_key = msgspec.json.Decoder(list[tuple[int, int]]).decode


def replacements(
    connection: Connection, id: int, type: str, key: str | None, *, is_replaced: bool
) -> tuple[list[int], list[int]]:
    """Return the tasks that a task has replaced, and those that have replaced it. Both lists begin with the oldest."""
    if key is None:
        return [], []
    earlier = _same_key(connection, "key_before", type, key, id)
    later = _same_key(connection, "key_after", type, key, id) if is_replaced else []
    replaced = [task for task, _ in takewhile(lambda each: each[1], reversed(earlier))]
    return replaced[::-1], _chain(later)


def _same_key(connection: Connection, statement: str, type: str, key: str, id: int) -> list[tuple[int, int]]:
    """Return the other tasks with a key as ``(id, True if it was replaced)``, sorted by id."""
    return sorted(_decode_same_key(one(connection, SQL[statement], type, key, id, MOST_REPLACED)))


def _chain(later: list[tuple[int, int]]) -> list[int]:
    """Return the tasks up to and including the first one that was not replaced."""
    chain: list[int] = []
    for task, is_replaced in later:
        chain.append(task)
        if not is_replaced:
            break
    return chain
