"""A SQLite connection with the interface that the shared SQL code expects (:mod:`taskmill.store.sql.connection`).

SQLite has one write lock, so a transaction that writes is always exclusive.

The id sequence is part of the transaction. If a caller's transaction is rolled back, the sequence is reset, and the
next task would get an id that the caller already knows. So the highest id used in a caller's transaction is also
written to a small file beside the database, which no rollback touches, and every insert skips the ids up to it
(docs/decisions/0028). The file is only accessed under SQLite's write lock, so it needs no lock of its own.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from taskmill.errors import StoreError
from taskmill.store.sql.statements import SQL, Positional, load, positional
from taskmill.store.sqlite.combined import CombinedStatements

if TYPE_CHECKING:
    from taskmill.model.commit import Commit
    from taskmill.store.sql.connection import Cursor, Statement
    from taskmill.store.sqlite.connection import Connection

_LONGEST = 20
"""Number of digits of the largest possible id."""


class LostIds:
    """The ``-ids`` file of one database; it is created by the first task stored in a caller's transaction."""

    def __init__(self, database: str) -> None:
        self._path = database + "-ids"

    def highest(self) -> int:
        """Return the highest id that was used in a caller's transaction, or 0."""
        # Called for each insert: in the usual case, without a file, it must not cost a file descriptor.
        if not os.path.exists(self._path):
            return 0
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except OSError as wrong:
            raise StoreError(f"{self._path} cannot be read: {wrong.strerror}; no task can be stored") from wrong
        try:
            written = os.read(descriptor, _LONGEST + 1)
        finally:
            os.close(descriptor)
        if not written:
            # The process was killed between creating and writing the file, so its caller has not received an id.
            return 0
        if not written.isdigit():
            raise StoreError(f"{self._path} is damaged; delete it if no transaction that submits tasks is open")
        return int(written)

    def give_out(self, id: int) -> None:
        """Record that a caller is about to receive ids up to this one."""
        try:
            descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                os.write(descriptor, str(id).zfill(_LONGEST).encode())
            finally:
                os.close(descriptor)
        except OSError as wrong:
            raise StoreError(f"{self._path} cannot be written: {wrong.strerror}; the task was not stored") from wrong


def raise_sequence(connection: Connection, table: str, id: int) -> None:
    """Make the next id of a table greater than this one."""
    known = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    if known is None:
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, id))
    elif known[0] < id:
        connection.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (id, table))


STATEMENTS = load("sqlite")


class _PositionalStatements(dict[str, Positional]):
    """The statements that were used so far, by name. Any other text stands for itself."""

    def __missing__(self, statement: str) -> Positional:
        text = STATEMENTS.get(statement)
        if text is None:
            return Positional(statement, None)
        self[statement] = found = positional(text)
        return found


_POSITIONAL = _PositionalStatements()


class Session:
    """A connection that runs statements by name; ``raw`` is the underlying ``sqlite3`` connection."""

    def __init__(self, raw: Connection, lost_ids: LostIds | None = None) -> None:
        self.raw = raw
        self._lost_ids = lost_ids
        self._run = raw.execute
        self._combined = CombinedStatements(raw, self.text)

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Cursor:
        text, ordered = _POSITIONAL[statement]
        return self._run(text, parameters if ordered is None else ordered(parameters))

    def text(self, name: str, /) -> str:
        return STATEMENTS[name]

    def insert(self, statement: str, rows: str, count: int, _first_id: int | None = None, /) -> int:
        # Ids are consecutive and this transaction holds the write lock, so the planned first id is the next one anyway.
        return (self._run(_POSITIONAL[statement].text, (rows,)).lastrowid or 0) - count + 1

    def pass_over_lost_ids(self) -> None:
        if self._lost_ids is not None and (highest := self._lost_ids.highest()):
            raise_sequence(self.raw, "taskmill_task", highest)

    def execute_if_all(self, statement: str, parameters: Sequence[Any], count: int, /) -> bool:
        self._run("SAVEPOINT all_or_none")
        concerned = self.execute(statement, parameters).rowcount
        if concerned != count:
            self._run("ROLLBACK TO all_or_none")
        self._run("RELEASE all_or_none")
        return concerned == count

    def execute_together(self, statements: Sequence[Statement], /) -> str | None:
        return self._combined.execute(statements)

    def forget_combined(self) -> None:
        """Note that a transaction was rolled back, with the combinations that it has created."""
        self._combined.forget()

    def be_alone(self) -> None:
        return

    @property
    def rows_changed(self) -> int:
        return self.raw.total_changes

    def note(self, commit: Commit, /) -> None:
        # Ids ascend in the order of commits, so new tasks need no note.
        if commit.moves_tasks:
            self.execute(SQL["note_moves"])

    @contextmanager
    def rehearsal(self) -> Generator[None, None, None]:
        # With cache_spill on, SQLite writes pages of a large transaction to the log before the commit.
        self._run("PRAGMA cache_spill = OFF")
        try:
            yield
        finally:
            self._run("PRAGMA cache_spill = ON")

    @contextmanager
    def snapshot(self) -> Generator[None, None, None]:
        self._run("BEGIN")
        try:
            yield
        finally:
            self._run("COMMIT")
