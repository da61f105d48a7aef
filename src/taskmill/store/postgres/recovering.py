"""Rescue the tasks of dead nodes, inside the writer's transaction."""

from __future__ import annotations

import msgspec

from taskmill.model.commit import Recovery
from taskmill.store.sql.connection import Connection, one
from taskmill.store.sql.recovering import recover

_decode_buried = msgspec.json.Decoder(list[tuple[int, str, bool]]).decode


def rescue(connection: Connection, longest_silence: float, now: int) -> tuple[Recovery, list[str]]:
    """Delete nodes not seen for ``longest_silence`` seconds, and return their tasks to the queue.

    Return what that did, and the names of the nodes that died.
    """
    buried = _decode_buried(one(connection, "bury_nodes", longest_silence))
    recovery = recover(connection, now, {id: name for id, name, _ in buried})
    return recovery, [name for _, name, has_died in buried if has_died]
