"""The right to dispatch one file, as an operating-system lock on a companion file.

The kernel frees the lock when its last holder is gone, however it died, so takeover needs no lease and no clock.
Child processes that run handlers inherit the lock: the right passes on only after the last of them has ended, and
so two attempts of one task cannot overlap even when their scheduler is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

from taskmill.errors import AlreadyRunning, StoreError

RECOVERING = "recovering"
"""What a holder writes that keeps the lock only for a moment."""


class FileLock:
    """Holds the right until :meth:`release`."""

    def __init__(self, path: str, purpose: str) -> None:
        try:
            self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as wrong:
            raise StoreError(f"{path} cannot be opened: {wrong.strerror}") from wrong
        try:
            _lock(self._descriptor)
        except OSError:
            holder = os.read(self._descriptor, 32).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise _Held(holder) from None
        # A full disk must not keep anyone from dispatching; the name is only for people.
        with contextlib.suppress(OSError):
            os.truncate(self._descriptor, 0)
            os.write(self._descriptor, purpose.encode())

    def inheritable(self) -> list[int]:
        return [self._descriptor]

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.truncate(self._descriptor, 0)
            os.close(self._descriptor)


class _Held(Exception):
    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


async def acquire(path: str, *, recovering: bool) -> FileLock:
    """Take the right, or say who holds it. A holder that only recovers is waited for."""
    purpose = RECOVERING if recovering else str(os.getpid())
    waits = [0.01] * 10 + [0.05] * 200
    for number, wait in enumerate(waits):
        try:
            return FileLock(path, purpose)
        except _Held as held:
            # Who has just taken the lock may not have written its purpose yet; so everyone is asked a few times.
            if held.holder not in (RECOVERING, "") and number >= 3:
                raise AlreadyRunning(
                    f"another scheduler dispatches this file (process {held.holder}); "
                    "this one may submit and read, and can run once that one has stopped"
                ) from None
        await asyncio.sleep(wait)
    raise AlreadyRunning(f"{path} is held by somebody who does not let go")


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
