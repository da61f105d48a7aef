"""Task ids that were used in callers' transactions, which may have been rolled back since.

SQLite's id sequence is part of the transaction. A rollback resets it, and the next task would get an id that the caller
already knows. So the highest id used in a caller's transaction is also written to a small file beside the database,
which no rollback touches, and every insert skips the ids up to it (docs/decisions/0028). The file is only accessed
under SQLite's write lock, so it needs no lock of its own.
"""

from __future__ import annotations

import os

from taskmill.errors import StoreError
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
