"""The right to dispatch one database file: an operating-system lock on a companion file.

The kernel releases the lock when its last holder is gone, however it died, so a takeover needs no lease and no clock.
Child processes that run handlers inherit the lock. Another process can take it only after the last of them has ended,
so two attempts of one task cannot overlap even if their scheduler is killed. Processes forked from the scheduler or
from a worker close their copy at once, because they may outlive it for any length of time.

A dispatcher holds the lock exclusively. A process that only asks which process dispatches takes a shared lock for a
moment; a dispatcher that starts in that moment tries again.

If the companion file is deleted while it is locked, the next process would create and lock another one. So the
write-ahead log is locked as well: while any process has the database open, every other process finds the same log.
SQLite does not lock the log itself. On Windows the log is not locked, because open files cannot be deleted there.

The companion file also records which prefetched tasks have begun most recently. The database gets this only later, with
the end of the task. Bytes that were written to a file survive the death of the process without a sync, so the next
dispatcher finds which prefetched tasks the dead one had begun.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from typing import ClassVar

from taskmill.core.process import node_name
from taskmill.errors import AlreadyRunning, StoreError
from taskmill.store.sqlite.connection import Identity

LOCK, LOG = "-dispatch", "-wal"
UNKNOWN = "unknown"
PATIENCE = 10.0
"""Longest time, in seconds, that a starting dispatcher waits for processes that hold the lock shared."""
RETRY_AFTER = 0.005
HEADER = 64
"""Bytes at the start of the file: the process id of the dispatcher, and when it took the lock."""
READ_WRITE = os.O_RDWR | getattr(os, "O_BINARY", 0)
"""Windows would otherwise insert a byte before each newline in the beginnings."""
BEGINNINGS_AT = 8192
"""Where the beginnings are in the file; on Windows a byte before them is locked."""
BEGINNING = struct.Struct("<qqq")
MOST_BEGINNINGS = 4096
"""The number of beginnings that the file keeps. A dispatcher commits each of them within about 10 ms and two turns. If
it has written more by then, a crash of the oldest tasks is not counted."""

Beginning = tuple[int, int, int]
"""The id of a task, its attempt, and when it began in milliseconds since the epoch."""


class FileLock:
    """A held dispatch lock; :meth:`release` gives it up."""

    is_held = True
    _all_held: ClassVar[set[FileLock]] = set()

    def __init__(self, path: str, descriptors: Sequence[int], previous: str = UNKNOWN) -> None:
        self._file = Identity(path, descriptors[0])
        self.previous: Mapping[int | None, str] = {} if previous == UNKNOWN else {None: node_name(previous)}
        """The name of the dispatcher before this one, if it is known; like every node of a file it has no id."""
        self._descriptors = list(descriptors)
        self._noted = 0
        """How many beginnings this dispatcher has written."""
        self._all_held.add(self)

    def inheritable(self) -> list[int]:
        return list(self._descriptors)

    def check(self) -> None:
        """Raise ``StoreLost`` if the lock file was deleted, moved or replaced."""
        if self.is_held:
            self._file.check("the lock file")

    def note_beginnings(self, begun: Sequence[Beginning]) -> None:
        """Write that prefetched tasks begin, over the oldest beginnings; the first call removes all older ones.

        A full disk must not stop the tasks. Their beginnings are then known only once they are committed. Nothing is
        written after the lock was released: its descriptor may belong to another file by then.
        """
        if not self.is_held:
            return
        number = self._noted % MOST_BEGINNINGS
        now, later = begun[: MOST_BEGINNINGS - number], begun[MOST_BEGINNINGS - number :]
        data = b"".join(BEGINNING.pack(*beginning) for beginning in now)
        if not self._noted:
            data = data.ljust(MOST_BEGINNINGS * BEGINNING.size, b"\0")
        self._noted += len(now)
        with contextlib.suppress(OSError):
            os.lseek(self._descriptors[0], BEGINNINGS_AT + number * BEGINNING.size, os.SEEK_SET)
            os.write(self._descriptors[0], data)
        if later:
            self.note_beginnings(later)

    def beginnings(self) -> list[Beginning]:
        """Return the last beginnings that a dispatcher has written, this one or the one before it."""
        os.lseek(self._descriptors[0], 0, os.SEEK_SET)
        return beginnings_in(os.read(self._descriptors[0], BEGINNINGS_AT + MOST_BEGINNINGS * BEGINNING.size))

    def release(self) -> None:
        """Release the lock, even if another process still has a copy of the descriptor.

        A child process that another thread is just starting has a copy until it calls exec. Worker processes may still
        exist, but no attempt is running in them, so they do not need the lock.
        """
        if self.is_held:
            for descriptor in self._descriptors:
                _unlock(descriptor)
            self._close()

    def linger(self) -> None:
        return

    def _close(self) -> None:
        self.is_held = False
        self._all_held.discard(self)
        for descriptor in self._descriptors:
            os.close(descriptor)

    @classmethod
    def close_in_forked_child(cls) -> None:
        """Close the descriptors that a forked child has inherited, without unlocking: that would unlock the parent."""
        for lock in list(cls._all_held):
            lock._close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=FileLock.close_in_forked_child)


class NoLock:
    """The dispatch lock of a store in memory. No other process can open it, but handlers may outlast a run."""

    is_held = True
    previous: ClassVar[Mapping[int | None, str]] = {}

    def note_beginnings(self, begun: Sequence[Beginning]) -> None:
        """Write nothing: the tasks die with the process."""

    def beginnings(self) -> list[Beginning]:
        return []

    def inheritable(self) -> list[int]:
        return []

    def release(self) -> None:
        self.is_held = False

    def linger(self) -> None:
        return


async def acquire(database: str) -> FileLock:
    """Take the dispatch lock of an open database, or raise ``AlreadyRunning`` with the process that holds it."""
    path = database + LOCK
    descriptors: list[int] = []
    try:
        for guard in _guards(database):
            descriptors.append(_opened(guard))
            await _lock_exclusively(descriptors[-1], guard)
        previous = _read_holder(descriptors[0], path)
        # This is only shown to people, so a full disk must not prevent dispatching.
        with contextlib.suppress(OSError):
            os.lseek(descriptors[0], 0, os.SEEK_SET)
            os.write(descriptors[0], f"{os.getpid()} {time.time_ns() // 1_000_000}".encode().ljust(HEADER))
        right = FileLock(path, descriptors, previous)
    except OSError as wrong:
        _close_all(descriptors)
        raise StoreError(f"{wrong.filename or path} cannot be opened: {wrong.strerror}") from wrong
    except BaseException:
        _close_all(descriptors)
        raise
    return right


def _close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _guards(database: str) -> list[str]:
    """Return the files that a dispatcher locks."""
    return [database + LOCK] if sys.platform == "win32" else [database + LOCK, database + LOG]


def _opened(path: str) -> int:
    # Create the lock file only; the log belongs to SQLite.
    return os.open(path, (os.O_CREAT if path.endswith(LOCK) else 0) | READ_WRITE, 0o600)


def holder(database: str) -> str | None:
    """Return the id of the process that dispatches, or ``None``. A dispatcher that is just starting tries again."""
    for path in _guards(database):
        try:
            # Open it to read: a process that may not write can ask too. Windows cannot lock a file opened so.
            descriptor = os.open(path, READ_WRITE if sys.platform == "win32" else os.O_RDONLY)
        except FileNotFoundError:
            continue
        except OSError as wrong:
            raise StoreError(f"{path} cannot be opened: {wrong.strerror}") from wrong
        try:
            if not _try_lock(descriptor, shared=True):
                return _read_holder(descriptor, path)
            # Closing is not enough: a process forked in this moment has a copy of the descriptor, which keeps the lock.
            _unlock(descriptor)
        finally:
            os.close(descriptor)
    return None


def held_since(database: str) -> int | None:
    """Return when the last dispatcher took the lock, in milliseconds since the epoch, or ``None``."""
    path = database + LOCK
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as wrong:
        raise StoreError(f"{path} cannot be opened: {wrong.strerror}") from wrong
    try:
        _, since = _header(os.read(descriptor, HEADER))
    finally:
        os.close(descriptor)
    return since


def beginnings_in(file: bytes) -> list[Beginning]:
    """Return the beginnings of prefetched tasks in the contents of a lock file, in no order."""
    data = file[BEGINNINGS_AT:]
    whole = data[: len(data) - len(data) % BEGINNING.size]
    return [(id, attempt, at) for id, attempt, at in BEGINNING.iter_unpack(whole) if id]


def _read_holder(descriptor: int, path: str) -> str:
    if not path.endswith(LOCK):
        return UNKNOWN
    process, _ = _header(os.read(descriptor, HEADER))
    return process


def _header(data: bytes) -> tuple[str, int | None]:
    """Return the process id of the dispatcher and when it took the lock, as far as the file tells."""
    words = data.decode("ascii", "replace").split()
    process = words[0] if words else UNKNOWN
    return process, int(words[1]) if len(words) > 1 and words[1].isdecimal() else None


async def _lock_exclusively(descriptor: int, path: str) -> None:
    # Imported here, because a command that only asks which process dispatches has no event loop.
    import asyncio

    tries = round(PATIENCE / RETRY_AFTER)
    for _ in range(tries):
        if _try_lock(descriptor, shared=False):
            return
        if not _try_lock(descriptor, shared=True):
            break
        # The lock is only held shared, by processes that release it at once.
        _unlock(descriptor)
        await asyncio.sleep(RETRY_AFTER)
    raise AlreadyRunning(
        f"another scheduler dispatches this file (process {_read_holder(descriptor, path)}); "
        "this one may submit and read, and can run once that one has stopped; "
        "to wait for that, use run(standby=True) or running(standby=True)"
    )


if sys.platform == "win32":
    import msvcrt

    # msvcrt has no shared locks, and locked bytes cannot be read. So lock a byte far behind the process id.
    def _try_lock(descriptor: int, *, shared: bool) -> bool:  # noqa: ARG001
        try:
            os.lseek(descriptor, 4096, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 4096, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
else:
    import fcntl

    def _try_lock(descriptor: int, *, shared: bool) -> bool:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
