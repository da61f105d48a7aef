"""An SQLite file as the source or target of a move.

The seal of a store that is being moved is a set of triggers, so that it also stops processes that already have the
file open.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from taskmill.errors import AlreadyRunning, ConfigError, StoreError
from taskmill.store.moving.endpoint import Endpoint, Row, Unstorable, selection
from taskmill.store.moving.marks import SEALED
from taskmill.store.moving.tables import COUNTS, OPEN, Shape, Table
from taskmill.store.sql.load import recount
from taskmill.store.sql.recovering import recover
from taskmill.store.sqlite.connection import (
    MEMORY,
    DataRefused,
    connect,
    translated_errors,
)
from taskmill.store.sqlite.dispatch_lock import Beginning, acquire, holder
from taskmill.store.sqlite.log import LogFile
from taskmill.store.sqlite.migrate import NEWEST_VERSION, create_database, migrate
from taskmill.store.sqlite.session import LostIds, Session, raise_sequence

_TRIGGER = "taskmill_sealed_"
_PATIENCE_MS = 60_000


class SqliteEndpoint(Endpoint):
    """One database file; a move holds its dispatch lock."""

    def __init__(self, path: str, *, must_exist: bool) -> None:
        if path == MEMORY:
            raise ConfigError("a store in memory cannot be moved: it ends with its process")
        self.name = str(Path(path).absolute())
        self._closing = contextlib.ExitStack()
        self._begun: list[Beginning] = []
        """The prefetched tasks that a dead dispatcher had begun."""
        self._dead_nodes: Mapping[int | None, str] = {}
        try:
            self._open(must_exist=must_exist)
        except BaseException:
            self._closing.close()
            raise

    def _open(self, *, must_exist: bool) -> None:
        if not must_exist:
            create_database(self.name)
        elif not Path(self.name).is_file():
            raise StoreError(f"{self.name} does not exist")
        self._connection = connect(self.name)
        self._closing.callback(self._connection.close)
        with translated_errors(self.name):
            if must_exist:
                self.check_schema(NEWEST_VERSION)
            else:
                migrate(self._connection, self.name)
            self._connection.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
            self._reading = connect(self.name, read_only=True)
            self._closing.callback(self._reading.close)
            self._log = LogFile(self.name, connect(self.name))
            self._closing.callback(self._log.close)

    def take(self) -> None:
        try:
            right = asyncio.run(acquire(self.name))
        except AlreadyRunning as wrong:
            process = holder(self.name) or "unknown"
            raise AlreadyRunning(
                f"{self.name} is dispatched, or being moved, by process {process}; "
                "stop it, then run the same command again"
            ) from wrong
        self._closing.callback(right.release)
        self._begun, self._dead_nodes = right.beginnings(), right.previous

    def _how_to_upgrade(self) -> str:
        return f"upgrade it with `taskmill status {self.name}`"

    def _has_tables(self) -> bool:
        return bool(self.query("SELECT 1 FROM sqlite_schema WHERE name = 'taskmill_schema'"))

    def close(self) -> None:
        self._closing.close()

    def identity(self) -> object:
        found = Path(self.name).stat()
        return found.st_dev, found.st_ino

    # Reading

    def shapes(self) -> Mapping[str, Shape]:
        names = self.query(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, 9) = 'taskmill_' ORDER BY name"
        )
        return {name: self._shape(name) for (name,) in names}

    def _shape(self, table: str) -> Shape:
        columns = self.query(f"PRAGMA table_info({table})")
        keyed = sorted((position, name) for _, name, _, _, _, position in columns if position)
        return Shape({name: type for _, name, type, _, _, _ in columns}, [name for _, name in keyed])

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        with translated_errors(self.name):
            return self._connection.execute(sql, parameters).fetchall()

    def stream(self, table: Table, after: Sequence[Any] | None = None, *, ordered: bool) -> Generator[Row, None, None]:
        marks = None if after is None else ", ".join("?" * len(after))
        with translated_errors(self.name):
            yield from self._reading.execute(selection(table, {}, marks, ordered=ordered), after or ())

    def last_ids(self, tables: Sequence[Table]) -> Mapping[str, int]:
        wanted = {table.name for table in tables}
        last_ids = {name: last for name, last in self.query("SELECT name, seq FROM sqlite_sequence") if name in wanted}
        if highest := LostIds(self.name).highest():
            last_ids["taskmill_task"] = max(highest, last_ids.get("taskmill_task", 0))
        return last_ids

    # Writing

    @contextlib.contextmanager
    def writing(self, seal: str | None, *, durable: bool = False) -> Generator[None, None, None]:
        with translated_errors(self.name):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._unseal()
                yield
                if seal is not None:
                    self._seal(seal)
                self._connection.execute("COMMIT")
            except GeneratorExit:
                # Ctrl-C came just before or after the caller's block. Closing the connection rolls back.
                raise
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            self._keep_log(durable=durable)

    def _keep_log(self, *, durable: bool) -> None:
        if durable or self._log.wants_checkpoint():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._log.make_durable()
                self._log.checkpoint()
            except OSError as wrong:
                raise StoreError(
                    f"{self.name}: the disk refused to keep what was written: {wrong.strerror};"
                    " check the disk, then run the same command again"
                ) from wrong
            finally:
                self._connection.execute("ROLLBACK")

    def _unseal(self) -> None:
        # fetchall: an open cursor on sqlite_schema would keep the schema locked.
        names = self._connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for (name,) in names:
            if name.startswith(_TRIGGER):
                self._connection.execute(f"DROP TRIGGER {name}")

    def _seal(self, words: str) -> None:
        said = f"{SEALED}{words}".replace("'", "''")
        for table in self.shapes().keys() - OPEN:
            for deed in ("INSERT", "UPDATE", "DELETE"):
                self._connection.execute(
                    f"CREATE TRIGGER {_TRIGGER}{table}_{deed.lower()} BEFORE {deed} ON {table}"
                    f" BEGIN SELECT RAISE(ABORT, '{said}'); END"
                )

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        columns = [*table.columns, *table.constants]
        values = [*("?" * len(table.columns)), *map(str, table.constants.values())]
        sql = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({', '.join(values)})"  # noqa: S608
        try:
            self._connection.executemany(sql, rows)
        except (DataRefused, UnicodeEncodeError) as wrong:
            raise Unstorable(str(wrong)) from wrong

    def clear(self, tables: Sequence[Table]) -> None:
        for name in (*(table.name for table in tables), COUNTS):
            self._connection.execute(f"DELETE FROM {name}")  # noqa: S608

    def raise_ids(self, last: Mapping[str, int]) -> None:
        with translated_errors(self.name):
            for name, id in last.items():
                raise_sequence(self._connection, name, id)

    def get_ready(self, tables: Sequence[Table]) -> None:  # noqa: ARG002 - for statistics of a server
        """Count the tasks; the plans of our statements do not depend on statistics."""
        recount(Session(self._connection))

    def check_unused(self) -> None:
        """Do nothing: this process holds the dispatch lock."""

    def settle(self, now: int) -> None:
        recover(Session(self._connection), now, self._dead_nodes, self._begun)
