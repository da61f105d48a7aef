"""The right to dispatch one file, as an operating-system lock on a companion file.

The kernel frees the lock when its last holder is gone, however it died, so takeover needs no lease and no clock.
Child processes that run handlers inherit the lock: the right passes on only after the last of them has ended, and
so two attempts of one task cannot overlap even when their scheduler is killed.
"""

from __future__ import annotations

import contextlib
import os
import sys

from taskmill.errors import AlreadyRunning, StoreError


class FileLock:
    """Holds the right until :meth:`release`."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as wrong:
            raise StoreError(f"{path} cannot be created: {wrong.strerror}") from wrong
        try:
            _lock(self._descriptor)
        except OSError:
            holder = os.read(self._descriptor, 32).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise AlreadyRunning(
                f"another scheduler dispatches this file (process {holder or 'unknown'}); "
                "this one may submit and read, and can run once that one has stopped"
            ) from None
        os.truncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(os.getpid()).encode(), 0) if hasattr(os, "pwrite") else None

    def inheritable(self) -> list[int]:
        return [self._descriptor]

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


class NoLock:
    """A store in memory has no other process."""

    def inheritable(self) -> list[int]:
        return []

    def release(self) -> None:
        return


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        # Lock a byte far behind the text, so that others can still read who holds it.
        os.lseek(descriptor, 4096, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
