"""The right to dispatch one file, as an operating-system lock on a companion file.

The kernel frees the lock when its last holder is gone, however it died, so takeover needs no lease and no clock.
Child processes that run handlers inherit the lock: the right passes on only after the last of them has ended, and
so two attempts of one task cannot overlap even when their scheduler is killed. Processes that are forked from the
scheduler or from a worker close their copy at once, since they may live for any time.

A dispatcher holds the lock exclusively. A process that asks which one dispatches holds it shared for a moment; a
dispatcher that starts in this moment tries again.

The companion file may be deleted while it is locked, and the next process would create and lock another one. So the
write-ahead log is locked as well: as long as a process has the database open, every other process finds the same log.
SQLite locks other files. Windows does not delete files that are open.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import ClassVar

from taskmill.errors import AlreadyRunning, StoreError
from taskmill.store.sqlite.identity import Identity

LOCK, LOG = "-dispatch", "-wal"
UNKNOWN = "unknown"
PATIENCE = 10.0
"""Seconds for which a dispatcher waits for processes that only ask."""
RETRY_AFTER = 0.005


class FileLock:
    """Holds the right until :meth:`release`."""

    is_held = True
    _all_held: ClassVar[set[FileLock]] = set()

    def __init__(self, path: str, descriptors: Sequence[int]) -> None:
        self._file = Identity(path, descriptors[0])
        self._descriptors = list(descriptors)
        self._all_held.add(self)

    def inheritable(self) -> list[int]:
        return list(self._descriptors)

    def check(self) -> None:
        """Raise ``StoreLost`` if the lock file is no longer where others look for it."""
        if self.is_held:
            self._file.check("the lock file")

    def release(self) -> None:
        """Give the right up, also if another process still has a copy of the descriptor.

        A program that another thread is starting has a copy until it is executed. No attempt is alive here, so
        a worker that has not ended yet does not need the right.
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
        """Close the copies that a forked child has. Unlocking would take the right from the parent."""
        for lock in list(cls._all_held):
            lock._close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=FileLock.close_in_forked_child)


class NoLock:
    """A store in memory has no other process."""

    is_held = True

    def inheritable(self) -> list[int]:
        return []

    def release(self) -> None:
        self.is_held = False

    def linger(self) -> None:
        return


async def acquire(database: str) -> FileLock:
    """Take the right to dispatch a database that is open, or say who holds it."""
    path = database + LOCK
    descriptors: list[int] = []
    try:
        for guard in _guards(database):
            descriptors.append(_opened(guard))
            await _lock_exclusively(descriptors[-1], guard)
        # Only people read this, so a full disk must not keep anyone from dispatching.
        with contextlib.suppress(OSError):
            os.truncate(descriptors[0], 0)
            os.write(descriptors[0], str(os.getpid()).encode())
        right = FileLock(path, descriptors)
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
    """Return the files whose locks make up the right to dispatch."""
    return [database + LOCK] if sys.platform == "win32" else [database + LOCK, database + LOG]


def _opened(path: str) -> int:
    # Only the lock file is ours to create.
    return os.open(path, (os.O_CREAT if path.endswith(LOCK) else 0) | os.O_RDWR, 0o600)


def holder(database: str) -> str | None:
    """Return the process that dispatches, or ``None``. A dispatcher that starts at this moment tries again."""
    for path in _guards(database):
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            continue
        except OSError as wrong:
            raise StoreError(f"{path} cannot be opened: {wrong.strerror}") from wrong
        try:
            if not _try_lock(descriptor, shared=True):
                return _read_holder(descriptor, path)
            # A process that was forked in this moment has a copy of the descriptor; closing ours would not unlock it.
            _unlock(descriptor)
        finally:
            os.close(descriptor)
    return None


def held_since(database: str) -> int | None:
    """When the last dispatcher took the right, in milliseconds: it has written its number then."""
    try:
        return int(os.stat(database + LOCK).st_mtime * 1000)
    except FileNotFoundError:
        return None


def _read_holder(descriptor: int, path: str) -> str:
    if not path.endswith(LOCK):
        return UNKNOWN
    return os.read(descriptor, 32).decode("ascii", "replace").strip() or UNKNOWN


async def _lock_exclusively(descriptor: int, path: str) -> None:
    tries = round(PATIENCE / RETRY_AFTER)
    for _ in range(tries):
        if _try_lock(descriptor, shared=False):
            return
        if not _try_lock(descriptor, shared=True):
            break
        # Only processes that ask hold it, and they let go at once.
        _unlock(descriptor)
        await asyncio.sleep(RETRY_AFTER)
    raise AlreadyRunning(
        f"another scheduler dispatches this file (process {_read_holder(descriptor, path)}); "
        "this one may submit and read, and can run once that one has stopped"
    )


if sys.platform == "win32":
    import msvcrt

    # There are no shared locks here; a byte far behind the text is locked, so that others can read who holds it.
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
