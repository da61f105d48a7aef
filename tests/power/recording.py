"""A recording: changes to the files of one folder, and the notes in between, in the order in which they happened."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

_HEAD = struct.Struct("<IIQqqQ")


class Kind(IntEnum):
    """The kind of a record; the numbers are those of ``recorder.c``."""

    CREATE = 1
    WRITE = 2
    SIZE = 3
    UNLINK = 4
    RENAME = 5
    LINK = 6
    SYNC_BEGINS = 7
    SYNC_ENDS = 8
    NOTE = 9
    UNSUPPORTED = 10


class Synced(IntEnum):
    """How a sync ended."""

    YES = 0
    LOST = 1
    """It failed, and the pages that it should have written are marked clean."""
    REPORTED_LATE = 2
    """It reports an earlier failure, through another descriptor."""


FOLDER = 0
"""The number of the folder itself; files have their inode instead."""


@dataclass(frozen=True, slots=True)
class Record:
    """One change, or one note. ``at`` is its position; a cut after it has everything up to there."""

    at: int
    kind: Kind
    process: int
    file: int
    first: int
    """WRITE: the offset. SIZE: the new size. SYNC_ENDS: where the sync begins."""
    second: int
    """SYNC_ENDS: its result."""
    data: bytes

    @property
    def names(self) -> list[str]:
        return [name.decode() for name in self.data.split(b"\0")]

    @property
    def note(self) -> dict[str, Any]:
        words: dict[str, Any] = json.loads(self.data)
        return words


def records(recording: Path) -> Iterator[Record]:
    """Read a recording; refuse one that is incomplete."""
    whole = recording.read_bytes()
    place = 0
    while place < len(whole):
        kind, process, file, first, second, length = _HEAD.unpack_from(whole, place)
        begin = place + _HEAD.size
        record = Record(place, Kind(kind), process, file, first, second, whole[begin : begin + length])
        if record.kind is Kind.UNSUPPORTED:
            raise ValueError(f"process {process} did what cannot be recorded: {record.data.decode()}")
        yield record
        place = begin + length
