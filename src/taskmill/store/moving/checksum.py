"""A checksum of a table's content that does not depend on the engine or on the order of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

_ALL_BITS = (1 << 128) - 1
_encode = msgspec.json.Encoder().encode


class Checksum(msgspec.Struct, frozen=True):
    """The number of rows, and the sum of the hashes of their JSON texts."""

    rows: int = 0
    content: int = 0

    def __str__(self) -> str:
        return f"{self.rows:,} rows ({self.content:032x})"


def add_up(before: Checksum, rows: Iterable[Sequence[Any]]) -> Checksum:
    count, content = before.rows, before.content
    number = int.from_bytes
    for row in rows:
        count += 1
        content += number(blake2b(_encode(row), digest_size=16).digest(), "big")
    return Checksum(count, content & _ALL_BITS)
