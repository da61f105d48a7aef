"""SQLite's write-ahead log as a file: forced to the disk, and copied back when it has grown."""

from __future__ import annotations

import os

from taskmill.errors import StoreBusy, StoreError
from taskmill.store.sqlite.connection import Connection, connect
from taskmill.store.sqlite.identity import Identity

CHECKPOINT_BYTES = 8 * 1024 * 1024
LOOK_EVERY = 16
"""Commits between two looks at the size of the log."""
READERS_PATIENCE_MS = 5000
"""How long to wait until no reader needs a log that has to begin anew."""

_force = getattr(os, "fdatasync", os.fsync)
_write = os.write


class LogFile:
    """The log of one database, with a connection of its own for copying it back."""

    def __init__(self, path: str, checkpointer: Connection) -> None:
        self._database = path
        self._checkpointer = checkpointer
        try:
            self._descriptor = os.open(path + "-wal", os.O_RDWR | getattr(os, "O_BINARY", 0))
        except OSError as wrong:
            raise StoreError(
                f"{path} cannot be written: it, or its log, is read-only here: {wrong.strerror}"
            ) from wrong
        self._database_file, self._log_file = Identity(path), Identity(path + "-wal", self._descriptor)
        self._until_look = LOOK_EVERY
        self._checkpoint_at = CHECKPOINT_BYTES
        self.in_doubt = os.fstat(self._descriptor).st_size > 0
        """True if parts of the log may be missing on the disk though a sync would succeed.

        A sync has failed, or the log was there before: then one may have failed in a process that is dead, and a
        descriptor that is opened later does not report it.
        """
        self.has_failed = False
        """True if a sync has failed here: then the log itself may not be what was committed."""

    def sync(self) -> None:
        """Force what was committed to the disk. Forcing a file through any descriptor forces all of it."""
        try:
            _force(self._descriptor)
        except OSError:
            self.doubt()
            raise
        self.check_files()

    def check_files(self) -> None:
        """Raise ``StoreLost`` if the files are no longer where others find them."""
        self._database_file.check("the database")
        self._log_file.check("the log")

    def doubt(self) -> None:
        """Note that a sync has failed."""
        self.in_doubt = self.has_failed = True

    def trust(self) -> None:
        """Note that the whole log is on the disk: it was written again, and a sync of that has succeeded."""
        self.in_doubt = self.has_failed = False

    def make_durable(self) -> None:
        """Force the whole log to the disk, also if it is in doubt; the caller holds the write lock."""
        if self.in_doubt:
            self.write_again()
        self.sync()
        self.trust()

    def write_again(self) -> bytes:
        """Write the whole log again, in place, so that the next sync really writes it; return what was written.

        The caller holds the write lock, so nothing is appended meanwhile.
        """
        content = self.content()
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        left = memoryview(content)
        while left:
            left = left[_write(self._descriptor, left) :]
        return content

    def content(self) -> bytes:
        """Return the log as the system's cache has it."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        pieces: list[bytes] = []
        while piece := os.read(self._descriptor, 1 << 20):
            pieces.append(piece)
        return b"".join(pieces)

    def wants_checkpoint(self) -> bool:
        """True if the log should be copied back: it is large, or soon there may not be enough room for the copy."""
        self._until_look -= 1
        if self._until_look > 0:
            return False
        self._until_look = LOOK_EVERY
        size = os.fstat(self._descriptor).st_size
        if size < CHECKPOINT_BYTES:
            self._checkpoint_at = CHECKPOINT_BYTES
        return size >= self._checkpoint_at or _room_beside(self._descriptor) < size

    def checkpoint(self) -> None:
        """Copy the log back; the caller holds the write lock. SQLite forces the log to the disk before."""
        # If it is refused, or a reader pins the log, the next try comes after it has grown further.
        self._checkpoint_at += CHECKPOINT_BYTES
        busy, logged, copied = self._checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if not busy and logged == copied:
            self._checkpoint_at = CHECKPOINT_BYTES

    def begin_anew(self) -> None:
        """Copy the whole log back and empty it, so that the next commits are written to other blocks of the disk.

        ext4 does not mend blocks that were allocated for a write that failed: written again and forced to the disk
        with success, they read as zeros after a power cut.
        """
        # SQLite's own descriptor would report the failure once more; one that is opened now does not.
        self._checkpointer.close()
        self._checkpointer = connect(self._database)
        self._checkpointer.execute(f"PRAGMA busy_timeout = {READERS_PATIENCE_MS}")
        busy, _, _ = self._checkpointer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._checkpointer.execute("PRAGMA busy_timeout = 0")
        if busy:
            raise StoreBusy(f"{self._database}: another process reads or writes for too long; is it stuck?")
        self.sync()

    def close(self) -> None:
        os.close(self._descriptor)
        self._checkpointer.close()


def _room_beside(descriptor: int) -> int:
    """Return how many bytes are free where a file lies."""
    if not hasattr(os, "fstatvfs"):
        return CHECKPOINT_BYTES
    found = os.fstatvfs(descriptor)
    return found.f_bavail * found.f_frsize
