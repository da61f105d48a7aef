"""SQLite's write-ahead log as a file: forced to the disk, and copied back when it has grown."""

from __future__ import annotations

import os

from taskmill.errors import StoreError
from taskmill.store.sqlite.connection import Connection

CHECKPOINT_BYTES = 8 * 1024 * 1024
LOOK_EVERY = 16
"""Commits between two looks at the size of the log."""

_force = getattr(os, "fdatasync", os.fsync)


class LogFile:
    """The log of one database, with a connection of its own for copying it back."""

    def __init__(self, path: str, checkpointer: Connection) -> None:
        self._path = path + "-wal"
        self._checkpointer = checkpointer
        try:
            self._descriptor = os.open(self._path, os.O_RDWR)
        except OSError as wrong:
            raise StoreError(
                f"{path} cannot be written: it, or its log, is read-only here: {wrong.strerror}"
            ) from wrong
        self._until_look = LOOK_EVERY
        self._checkpoint_at = CHECKPOINT_BYTES

    def sync(self) -> None:
        """Force what was committed to the disk. Forcing a file through any descriptor forces all of it."""
        _force(self._descriptor)

    def wants_checkpoint(self) -> bool:
        """Whether the log has grown enough to be copied back; asked after each commit."""
        self._until_look -= 1
        if self._until_look > 0:
            return False
        self._until_look = LOOK_EVERY
        size = os.fstat(self._descriptor).st_size
        if size < CHECKPOINT_BYTES:
            self._checkpoint_at = CHECKPOINT_BYTES
        return size >= self._checkpoint_at

    def checkpoint(self) -> None:
        """Copy the log back; the caller holds the write lock. SQLite forces the log to the disk before."""
        # If it is refused, or a reader pins the log, the next try comes after it has grown further.
        self._checkpoint_at += CHECKPOINT_BYTES
        busy, logged, copied = self._checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if not busy and logged == copied:
            self._checkpoint_at = CHECKPOINT_BYTES

    def close(self) -> None:
        os.close(self._descriptor)
        self._checkpointer.close()
