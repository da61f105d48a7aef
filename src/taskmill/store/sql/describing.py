"""Descriptions of active tasks for events and callers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from taskmill.model.task import Described
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.json_sql import encoded, one
from taskmill.store.sql.statements import SQL

UNREADABLE = (msgspec.MsgspecError, UnicodeError)
"""The exceptions that decoding a damaged row raises."""

_decode_described = msgspec.json.Decoder(list[Described]).decode
_decode_one = msgspec.json.Decoder(Described).decode


def describe(connection: Connection, ids: Sequence[int]) -> list[Described]:
    """Return the descriptions of these active tasks; that of a damaged row has only its id."""
    try:
        return _decode_described(one(connection, SQL["described"], encoded([(id,) for id in ids])))
    except UNREADABLE:
        if len(ids) == 1:
            return [_unreadable(ids[0])]
        return [task for id in ids for task in describe(connection, [id])]


def read_described(found: Sequence[msgspec.Raw]) -> list[Described] | None:
    """Decode descriptions that were read before; return ``None`` if one of them is damaged."""
    try:
        return [_decode_one(each) for each in found]
    except UNREADABLE:
        return None


def _unreadable(id: int) -> Described:
    return Described(
        id=id,
        type="",
        key=None,
        label=None,
        group="",
        priority=0,
        urgency=0,
        tags=None,
        created_at=0,
        aged_from=0,
    )
