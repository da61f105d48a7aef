"""One endpoint of a move: a store that is read, filled and sealed as a whole, without a scheduler.

Statements in this file are the same in both engines. The differences are in ``store/sqlite/endpoint.py`` and
``store/postgres/endpoint.py``.
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
    """Raised when an engine refuses rows because of their values."""


class Endpoint(ABC):
    """A store as the source or target of a move; :meth:`close` releases its locks and connections."""

    name: str

    # Implemented by each engine

    @abstractmethod
    def take(self) -> None:
        """Lock the store against other moves, and a file against dispatching, until it is closed.

        Raises ``AlreadyRunning`` if another process holds the lock.
        """

    @abstractmethod
    def identity(self) -> object:
        """Return a value that is equal for two endpoints on the same store."""

    @abstractmethod
    def _has_tables(self) -> bool:
        """True if the store has taskmill's tables."""

    @abstractmethod
    def _how_to_upgrade(self) -> str:
        """Return what a person does to upgrade the schema of a store that is not sealed."""

    @abstractmethod
    def shapes(self) -> Mapping[str, Shape]:
        """Return the columns and the key of every table of taskmill."""

    @abstractmethod
    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]: ...

    @abstractmethod
    def stream(self, table: Table, after: Sequence[Any] | None = None, *, ordered: bool) -> Generator[Row, None, None]:
        """Yield the rows of a table after a key, without loading all of them; booleans are 0 and 1."""

    @abstractmethod
    def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert rows; called inside :meth:`writing`. Raises ``Unstorable``."""

    @abstractmethod
    def clear(self, tables: Sequence[Table]) -> None:
        """Empty tables, and the numbers of tasks; called inside :meth:`writing`."""

    @abstractmethod
    def writing(self, seal: str | None, *, durable: bool = False) -> AbstractContextManager[None]:
        """Run a transaction that may write to a sealed store.

        It leaves the store sealed with the message ``seal``, or unsealed if that is None.
        """

    @abstractmethod
    def settle(self, now: int) -> None:
        """Check that no node dispatches, and return the tasks of a dead dispatcher to the queue.

        Called inside :meth:`writing`. Raises ``AlreadyRunning``.
        """

    @abstractmethod
    def check_unused(self) -> None:
        """Raise ``AlreadyRunning`` if a node dispatches."""

    @abstractmethod
    def last_ids(self, tables: Sequence[Table]) -> Mapping[str, int]:
        """Return the highest id that was ever used, by table."""

    @abstractmethod
    def raise_ids(self, last: Mapping[str, int]) -> None:
        """Make sure that ids up to these are not used again; called inside :meth:`writing`."""

    @abstractmethod
    def get_ready(self, tables: Sequence[Table]) -> None:
        """Count the tasks, and update the statistics of tables that were just filled; inside :meth:`writing`."""

    @abstractmethod
    def close(self) -> None: ...

    # The same for both engines

    def marks(self) -> Marks:
        return Marks.of((name, value) for name, value in self.query(READ))

    def check_schema(self, newest: int) -> None:
        """Raise ``StoreError`` or ``SchemaTooNew`` unless the store has exactly the schema of this version."""
        found = self.query("SELECT max(version) FROM taskmill_schema")[0][0] if self._has_tables() else None
        if not isinstance(found, int):
            raise StoreError(f"{self.name}: taskmill's tables are not in it")
        if found > newest:
            raise SchemaTooNew(f"{self.name} has schema {found}, this taskmill knows up to {newest}; upgrade taskmill")
        if found < newest:
            raise StoreError(f"{self.name} has schema {found}, this taskmill has {newest}; {self._advice()}")

    def _advice(self) -> str:
        # A sealed store cannot be opened, so nothing would upgrade it.
        if self.marks().is_sealed:
            return "an older version of taskmill began to move it: finish or undo that move with that version"
        return f"{self._how_to_upgrade()}, then run the same command again"

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
        """Restore the settings of a new store after :meth:`clear`; called inside :meth:`writing`."""
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
    """Return the statement that reads a table; ``shown`` maps columns to the expressions to read instead."""
    columns = ", ".join(
        f"CAST(sum({column}) AS bigint)" if column in table.sums else shown.get(column, column)
        for column in table.columns
    )
    conditions = " AND ".join(filter(None, [table.only, after and f"({', '.join(table.key)}) > ({after})"]))
    grouped = f" GROUP BY {', '.join(c for c in table.columns if c not in table.sums)}" if table.sums else ""
    order = f" ORDER BY {', '.join(table.key)}" if ordered else ""
    # All names come from taskmill's own schema, and values are parameters or quoted literals.
    return f"SELECT {columns} FROM {table.name}{_where(conditions)}{grouped}{order}"  # noqa: S608


def _where(condition: str | None) -> str:
    return f" WHERE {condition}" if condition else ""
