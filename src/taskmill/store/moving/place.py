"""One end of a move: a store that is read, filled and sealed as a whole, without a scheduler.

Statements here are the same in both engines. What differs is in ``store/sqlite/place.py`` and
``store/postgres/place.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from taskmill.errors import SchemaTooNew, StoreError
from taskmill.store.moving.marks import ARRIVAL, ARRIVED, DEPARTURE, READ, Arrival, Arrived, Departure, Marks, encoded
from taskmill.store.moving.tables import NEW_SETTINGS, Shape, Table

Row = Sequence[Any]


class Unstorable(Exception):
    """An engine refuses rows because of what is in them."""


class Place(ABC):
    """A store. Close it to let go of it."""

    name: str

    # What differs

    @abstractmethod
    def take(self) -> None:
        """From here to the end nobody else moves it, nor dispatches a file. Raises ``AlreadyRunning``."""

    @abstractmethod
    def identity(self) -> object:
        """Equal for two places that are one."""

    @abstractmethod
    def _has_tables(self) -> bool:
        """Whether there is anything of ours in it."""

    @abstractmethod
    def shapes(self) -> Mapping[str, Shape]:
        """Every table of ours."""

    @abstractmethod
    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]: ...

    @abstractmethod
    def stream(self, table: Table, after: Sequence[Any] | None = None, *, ordered: bool) -> Generator[Row, None, None]:
        """Rows one by one, however many there are; flags as 0 and 1."""

    @abstractmethod
    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows, inside :meth:`writing`."""

    @abstractmethod
    def clear(self, tables: Sequence[Table]) -> None:
        """Empty tables, inside :meth:`writing`."""

    @abstractmethod
    def writing(self, seal: str | None, *, durable: bool = False) -> AbstractContextManager[None]:
        """A transaction that no seal hinders, and that leaves the store sealed with these words, or open."""

    @abstractmethod
    def settle(self, now: int) -> None:
        """See that nobody dispatches, and return to the queue what a dead dispatcher left running.

        Called inside :meth:`writing`. Raises ``AlreadyRunning``.
        """

    @abstractmethod
    def check_unused(self) -> None:
        """See that nobody dispatches. Raises ``AlreadyRunning``."""

    @abstractmethod
    def last_ids(self, tables: Sequence[Table]) -> Mapping[str, int]:
        """The highest id that was ever given, by table."""

    @abstractmethod
    def raise_ids(self, last: Mapping[str, int]) -> None:
        """Give no id again up to these, inside :meth:`writing`."""

    @abstractmethod
    def get_ready(self, tables: Sequence[Table]) -> None:
        """Whatever makes a store that was just filled as quick as one that has grown, inside :meth:`writing`."""

    @abstractmethod
    def close(self) -> None: ...

    # What does not

    def marks(self) -> Marks:
        return Marks.of((name, value) for name, value in self.query(READ))

    def check_schema(self, newest: int) -> None:
        """See that it has the tables of this version."""
        found = self.query("SELECT max(version) FROM taskmill_schema")[0][0] if self._has_tables() else None
        if not isinstance(found, int):
            raise StoreError(f"{self.name}: taskmill's tables are not in it")
        if found > newest:
            raise SchemaTooNew(f"{self.name} has schema {found}, this taskmill knows up to {newest}; upgrade taskmill")
        if found < newest:
            raise StoreError(f"{self.name} has schema {found}, this taskmill has {newest}; {self._how_to_upgrade()}")

    def _how_to_upgrade(self) -> str:
        # A sealed store is not opened, so it is not upgraded either.
        if self.marks().is_sealed:
            return "an older taskmill began to move it: finish that move, or undo it, with that one"
        return f"`taskmill status {self.name}` brings it up to date, then run the same command again"

    def depart(self, mark: Departure | None) -> None:
        self._mark(DEPARTURE, mark)

    def arrive(self, mark: Arrival | None) -> None:
        self._mark(ARRIVAL, mark)

    def remember(self, mark: Arrived | None) -> None:
        self._mark(ARRIVED, mark)

    def _mark(self, name: str, mark: Departure | Arrival | Arrived | None) -> None:
        self.query("DELETE FROM taskmill_setting WHERE name = ?", (name,))
        if mark is not None:
            self.query("INSERT INTO taskmill_setting (name, value) VALUES (?, ?)", (name, encoded(mark)))

    def begin_settings(self) -> None:
        """As they are in a new store, inside :meth:`writing`, after they were cleared."""
        for name, value in NEW_SETTINGS.items():
            self.query("INSERT INTO taskmill_setting (name, value) VALUES (?, ?)", (name, value))

    def count(self, table: Table) -> int:
        keys = ", ".join(table.key)
        what = f"(SELECT DISTINCT {keys} FROM {table.name}) AS rows_of_it" if table.sums else table.name  # noqa: S608
        found: int = self.query(f"SELECT count(*) FROM {what}{_where(table.only)}")[0][0]  # noqa: S608
        return found

    def is_empty(self, table: Table) -> bool:
        return not self.query(f"SELECT 1 FROM {table.name}{_where(table.only)} LIMIT 1")  # noqa: S608


def selection(table: Table, shown: Mapping[str, str], after: str | None, *, ordered: bool) -> str:
    """The statement that reads a table. ``shown`` are columns that are read as something else."""
    columns = ", ".join(
        f"CAST(sum({column}) AS bigint)" if column in table.sums else shown.get(column, column)
        for column in table.columns
    )
    conditions = " AND ".join(filter(None, [table.only, after and f"({', '.join(table.key)}) > ({after})"]))
    grouped = f" GROUP BY {', '.join(c for c in table.columns if c not in table.sums)}" if table.sums else ""
    order = f" ORDER BY {', '.join(table.key)}" if ordered else ""
    # Names from our own schemas; values are parameters.
    return f"SELECT {columns} FROM {table.name}{_where(conditions)}{grouped}{order}"  # noqa: S608


def _where(condition: str | None) -> str:
    return f" WHERE {condition}" if condition else ""
