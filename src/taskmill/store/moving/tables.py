"""The tables and columns that move with a queue, derived from the schemas of both stores, and checksums of tables.

Every table of taskmill moves unless it is listed here, so a table that a migration adds is not forgotten. The same
holds for columns: only columns listed here may exist in one store and not in the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from taskmill.errors import StoreError
from taskmill.store.moving.marks import NAMES

COUNTS = "taskmill_load"
"""The numbers of waiting tasks. They are emptied with the tasks, and counted again after these were copied."""

STAY = frozenset({"taskmill_schema", "taskmill_node", "taskmill_writing", "taskmill_commit", COUNTS})
"""Tables that do not move: schema version, nodes, write lock, marks of writers, and counts, which are made anew."""

OPEN = frozenset({"taskmill_schema", "taskmill_writing", "taskmill_commit"})
"""Tables that a seal leaves writable."""

OWN_COLUMNS: Mapping[str, Mapping[str, int | None]] = {
    "taskmill_task": {"node_id": None},
    "taskmill_tally": {"shard": 0},
}
"""Columns that only PostgreSQL has, with their values after a move: no task has a node, and the tally has one shard."""

SUMS: Mapping[str, Sequence[str]] = {"taskmill_tally": ("ended", "kept", "duration_ms")}
"""Columns that are summed over rows that differ only in columns of one engine, such as the shard of a tally."""

ROWS: Mapping[str, str] = {"taskmill_setting": f"name NOT IN {NAMES}"}
"""Conditions for tables of which only some rows belong to the queue."""

MAY_BE_THERE = frozenset({"taskmill_setting", "taskmill_type"})
"""Tables that a scheduler writes to when it opens a new store; a store with rows only in them counts as empty."""

NEW_SETTINGS: Mapping[str, str] = {"controls_version": "0"}
"""The settings of a new store."""

LAST = ("taskmill_task", "taskmill_task_tag", "taskmill_history", "taskmill_history_tag", "taskmill_error")
"""The large tables, which are copied last."""


class Shape(msgspec.Struct, frozen=True):
    """The columns and the primary key of a table in one store."""

    columns: Mapping[str, str]
    """Types by column name, in order."""
    key: Sequence[str]


class Table(msgspec.Struct, frozen=True):
    """A table that moves."""

    name: str
    columns: Sequence[str]
    key: Sequence[str]
    """The columns by which rows are ordered while they are copied."""
    sums: Sequence[str] = ()
    only: str | None = None
    constants: Mapping[str, int] = {}
    """Values for columns that only the target has."""

    def names(self) -> str:
        return ", ".join(self.columns)


def moving(source: Mapping[str, Shape], target: Mapping[str, Shape], where: str) -> list[Table]:
    """Return the tables that move, small ones first; ``where`` names the stores in error messages."""
    found = (set(source) | set(target)) - STAY
    names = sorted(found - set(LAST)) + [name for name in LAST if name in found]
    return [_table(name, source.get(name), target.get(name), where) for name in names]


def _table(name: str, source: Shape | None, target: Shape | None, where: str) -> Table:
    if source is None or target is None:
        raise StoreError(f"{where}: only one of them has the table {name}, so it cannot be moved")
    own = OWN_COLUMNS.get(name, {})
    columns = [column for column in source.columns if column not in own]
    if set(columns) != set(target.columns) - set(own):
        raise StoreError(f"{where}: the table {name} does not have the same columns in both, so it cannot be moved")
    key = [column for column in source.key if column not in own]
    if not key:
        raise StoreError(f"{where}: the table {name} has no primary key, so it cannot be moved in parts")
    constants = {column: value for column, value in own.items() if column in target.columns and value is not None}
    return Table(name, columns, key, SUMS.get(name, ()), ROWS.get(name), constants)


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
