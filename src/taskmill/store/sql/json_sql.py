"""Helpers for statements that handle a whole batch: one JSON value in, one JSON value out."""

from __future__ import annotations

from typing import Any

import msgspec

from taskmill.store.sql.connection import Connection

_encode = msgspec.json.Encoder().encode

decode_ids = msgspec.json.Decoder(list[int]).decode
decode_pairs = msgspec.json.Decoder(list[tuple[int, int]]).decode


def encoded(value: Any) -> str:
    return _encode(value).decode()


def one(connection: Connection, sql: str, *parameters: Any) -> Any:
    """Return the single value that a statement returns."""
    return connection.execute(sql, parameters).fetchone()[0]
