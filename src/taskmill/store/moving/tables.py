"""Which tables make up a queue, as the schemas of two stores have them.

Every table of ours moves, whatever its columns are, unless it is named here: so one that a migration adds is not
forgotten. Columns are those that both stores have; what only one of them may have is named as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from taskmill.errors import StoreError
from taskmill.store.moving.marks import NAMES

STAY = frozenset({"taskmill_schema", "taskmill_node", "taskmill_writing", "taskmill_commit"})
"""What a store is, not what it holds: its version, who is there, a lock, and what writers have last done."""

OPEN = frozenset({"taskmill_schema", "taskmill_writing", "taskmill_commit"})
"""What a seal leaves alone."""

OWN_COLUMNS: Mapping[str, Mapping[str, int | None]] = {
    "taskmill_task": {"node_id": None},
    "taskmill_tally": {"shard": 0},
}
"""What only a cluster needs, and what stands there after a move: nothing runs, and nobody has counted yet."""

SUMS: Mapping[str, Sequence[str]] = {"taskmill_tally": ("ended", "kept", "duration_ms")}
"""Columns that are added up over rows which differ only in columns of one store's own."""

ROWS: Mapping[str, str] = {"taskmill_setting": f"name NOT IN {NAMES}"}
"""What belongs to the queue, where that is not all of a table."""

MAY_BE_THERE = frozenset({"taskmill_setting", "taskmill_type"})
"""What a scheduler writes when it opens a new store; a store with nothing else is empty."""

NEW_SETTINGS: Mapping[str, str] = {"controls_version": "0"}
"""What stands in the settings of a store that is new."""

LAST = ("taskmill_task", "taskmill_task_tag", "taskmill_history", "taskmill_history_tag")
"""The large ones, after everything else."""


class Shape(msgspec.Struct, frozen=True):
    """A table as a store has it."""

    columns: Mapping[str, str]
    """Names and types, in order."""
    key: Sequence[str]


class Table(msgspec.Struct, frozen=True):
    """A table that moves."""

    name: str
    columns: Sequence[str]
    key: Sequence[str]
    """By which its rows are ordered while they are copied."""
    sums: Sequence[str] = ()
    only: str | None = None
    constants: Mapping[str, int] = {}
    """What stands in columns of the target's own."""

    def names(self) -> str:
        return ", ".join(self.columns)


def moving(source: Mapping[str, Shape], target: Mapping[str, Shape], where: str) -> list[Table]:
    """What moves, small tables first. ``where`` names the stores, for the refusal."""
    found = (set(source) | set(target)) - STAY
    names = sorted(found - set(LAST)) + [name for name in LAST if name in found]
    return [_table(name, source.get(name), target.get(name), where) for name in names]


def _table(name: str, source: Shape | None, target: Shape | None, where: str) -> Table:
    if source is None or target is None:
        raise StoreError(f"{where}: only one of them has the table {name}, so it cannot be moved")
    own = OWN_COLUMNS.get(name, {})
    columns = [column for column in source.columns if column not in own]
    if set(columns) != set(target.columns) - set(own):
        raise StoreError(f"{where}: the table {name} has other columns in one than in the other")
    key = [column for column in source.key if column not in own]
    if not key:
        raise StoreError(f"{where}: the table {name} has no primary key, so it cannot be moved in parts")
    constants = {column: value for column, value in own.items() if column in target.columns and value is not None}
    return Table(name, columns, key, SUMS.get(name, ()), ROWS.get(name), constants)
