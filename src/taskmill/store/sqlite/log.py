"""SQLite's write-ahead log as a file: syncing it, checkpointing it when it has grown, and checking its frames."""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Callable
from typing import Any

from taskmill.errors import StoreBusy, StoreError
from taskmill.store.sqlite.connection import Connection, Identity, connect

CHECKPOINT_BYTES = 8 * 1024 * 1024
LOOK_EVERY = 16
"""Commits between two checks of the log's size."""
READERS_PATIENCE_MS = 5000
"""How long to wait for readers that still need the log before it is truncated."""

_HAS_NO_FULL_SYNC = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY}

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl


def forcing(control: Any = fcntl) -> Callable[[int], None]:
    """Return the call that ends once a file is on the disk; ``control`` is the module ``fcntl``, if there is one.

    On macOS, ``fsync`` leaves data in the cache of the drive, where a power cut destroys it. ``F_FULLFSYNC`` empties
    that cache, but some file systems, such as network shares, do not have it.
    """
    full_sync = getattr(control, "F_FULLFSYNC", None)
    if full_sync is None:
        plain: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
        return plain

    def force(descriptor: int) -> None:
        try:
            control.fcntl(descriptor, full_sync)
        except OSError as wrong:
            if wrong.errno not in _HAS_NO_FULL_SYNC:
                raise
            os.fsync(descriptor)

    return force


_force = forcing()
_write = os.write


class LogFile:
    """The write-ahead log of one database, with its own connection for checkpoints."""

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
        """True if parts of the log may be missing on the disk although the next sync would succeed.

        Either a sync has failed here, or the log existed before it was opened. In the second case a sync may have
        failed in a process that is dead by now, and a descriptor opened later does not report that failure.
        """
        self.has_failed = False
        """True if a sync has failed here. Then even the file's content may differ from what was committed."""

    def sync(self) -> None:
        """Sync the log to the disk. A sync through any descriptor covers the whole file."""
        try:
            _force(self._descriptor)
        except OSError:
            self.doubt()
            raise
        self.check_files()

    def check_files(self) -> None:
        """Raise ``StoreLost`` if the database or its log was deleted, moved or replaced."""
        self._database_file.check("the database")
        self._log_file.check("the log")

    def doubt(self) -> None:
        """Record that a sync has failed."""
        self.in_doubt = self.has_failed = True

    def trust(self) -> None:
        """Record that the whole log is on the disk: it was rewritten and then synced successfully."""
        self.in_doubt = self.has_failed = False

    def make_durable(self) -> None:
        """Sync the whole log to the disk, rewriting it first if it is in doubt; the caller holds the write lock."""
        if self.in_doubt:
            self.write_again()
        self.sync()
        self.trust()

    def write_again(self) -> bytes:
        """Rewrite the whole log in place, so that the next sync really writes it; return its content.

        The caller holds the write lock, so nothing is appended in the meantime.
        """
        content = self.content()
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        left = memoryview(content)
        while left:
            left = left[_write(self._descriptor, left) :]
        return content

    def content(self) -> bytes:
        """Return the log as it is in the page cache."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        pieces: list[bytes] = []
        while piece := os.read(self._descriptor, 1 << 20):
            pieces.append(piece)
        return b"".join(pieces)

    def wants_checkpoint(self) -> bool:
        """True if a checkpoint is due: the log is large, or free disk space is about to get too small for one."""
        self._until_look -= 1
        if self._until_look > 0:
            return False
        self._until_look = LOOK_EVERY
        size = os.fstat(self._descriptor).st_size
        if size < CHECKPOINT_BYTES:
            self._checkpoint_at = CHECKPOINT_BYTES
        return size >= self._checkpoint_at or _room_beside(self._descriptor) < size

    def checkpoint(self) -> None:
        """Copy the log into the database; the caller holds the write lock. SQLite syncs the log first."""
        # After an error, or if a reader pins the log, the next attempt waits until the log has grown further.
        self._checkpoint_at += CHECKPOINT_BYTES
        busy, logged, copied = self._checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if not busy and logged == copied:
            self._checkpoint_at = CHECKPOINT_BYTES

    def begin_anew(self) -> None:
        """Checkpoint the whole log and truncate it, so that the next commits are written to other disk blocks.

        ext4 does not repair blocks that were allocated for a failed write: even after a successful rewrite and sync
        they read as zeros after a power cut.
        """
        # SQLite's present descriptor would report the failure once more; a newly opened one does not.
        self._checkpointer.close()
        self._checkpointer = connect(self._database)
        self._checkpointer.execute(f"PRAGMA busy_timeout = {READERS_PATIENCE_MS}")
        busy, _, _ = self._checkpointer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._checkpointer.execute("PRAGMA busy_timeout = 0")
        if busy:
            raise StoreBusy(
                f"{self._database}: another process has had a transaction open for {READERS_PATIENCE_MS / 1000:g} s; "
                "end it, or try again"
            )
        self.sync()

    def close(self) -> None:
        os.close(self._descriptor)
        self._checkpointer.close()


def _room_beside(descriptor: int) -> int:
    """Return the free bytes of the file system that holds an open file."""
    if not hasattr(os, "fstatvfs"):
        return CHECKPOINT_BYTES
    found = os.fstatvfs(descriptor)
    return found.f_bavail * found.f_frsize


LOG_HEADER = 32
FRAME_HEADER = 24
_LITTLE_ENDIAN = 0x377F0682


def is_intact(log: bytes, upto: int) -> bool:
    """True if every frame, up to the one that contains byte ``upto``, is as it was written.

    The checksum of a frame covers everything before it, so one lost frame invalidates all later ones.
    """
    if len(log) < LOG_HEADER:
        return False
    magic, _, page, _, *salts, first, second = struct.unpack(">8I", log[:LOG_HEADER])
    order = "<" if magic == _LITTLE_ENDIAN else ">"
    if _checksum(order, log[: LOG_HEADER - 8], 0, 0) != (first, second):
        return False
    size = FRAME_HEADER + page
    for start in range(LOG_HEADER, upto + 1, size):
        frame = log[start : start + size]
        if len(frame) < size:
            return False
        _, _, *its_salts, expected_first, expected_second = struct.unpack(">6I", frame[:FRAME_HEADER])
        first, second = _checksum(order, frame[:8] + frame[FRAME_HEADER:], first, second)
        if its_salts != salts or (first, second) != (expected_first, expected_second):
            return False
    return True


def _checksum(order: str, content: bytes, first: int, second: int) -> tuple[int, int]:
    for one, other in struct.iter_unpack(order + "II", content):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second


def first_difference(before: bytes, after: bytes) -> int:
    """Return the offset of the first byte in which two states of a log differ."""
    shorter = min(len(before), len(after))
    low, high = 0, shorter
    while low < high:
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
