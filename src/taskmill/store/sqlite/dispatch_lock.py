"""The right to dispatch one file, as an operating-system lock on a companion file.

The kernel frees the lock when its last holder is gone, however it died, so takeover needs no lease and no clock.
Child processes that run handlers inherit the lock: the right passes on only after the last of them has ended, and
so two attempts of one task cannot overlap even when their scheduler is killed.

A dispatcher holds the lock exclusively. Whoever opens the file holds it shared for the moment of recovery; a dispatcher
that meets only such openers waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

from taskmill.errors import AlreadyRunning, StoreError

OPENERS_PATIENCE = 10.0
RETRY_AFTER = 0.005


class FileLock:
    """Holds the right until :meth:`release`."""

    is_held = True

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def inheritable(self) -> list[int]:
        return [self._descriptor]

    def release(self) -> None:
        self.is_held = False
        os.close(self._descriptor)

    def linger(self) -> None:
        return


class NoLock:
    """A store in memory has no other process."""

    is_held = True

    def inheritable(self) -> list[int]:
        return []

    def release(self) -> None:
        self.is_held = False

    def linger(self) -> None:
        return


async def acquire(path: str, *, recovering: bool) -> FileLock:
    """Take the right, or say who holds it."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as wrong:
        raise StoreError(f"{path} cannot be opened: {wrong.strerror}") from wrong
    try:
        if recovering:
            if not _try_lock(descriptor, shared=True):
                raise _already_running(descriptor)
        else:
            await _lock_exclusively(descriptor)
            # Only people read this, so a full disk must not keep anyone from dispatching.
            with contextlib.suppress(OSError):
                os.truncate(descriptor, 0)
                os.write(descriptor, str(os.getpid()).encode())
    except BaseException:
        os.close(descriptor)
        raise
    return FileLock(descriptor)


def holder(path: str) -> str | None:
    """The process that dispatches, or ``None``; looking disturbs nobody."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        return None if _try_lock(descriptor, shared=True) else _read_holder(descriptor)
    finally:
        os.close(descriptor)


def held_since(path: str) -> int:
    """When the last dispatcher took the right, in milliseconds: it has written its number then."""
    return int(os.stat(path).st_mtime * 1000)


def _read_holder(descriptor: int) -> str:
    return os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"


async def _lock_exclusively(descriptor: int) -> None:
    tries = round(OPENERS_PATIENCE / RETRY_AFTER)
    for _ in range(tries):
        if _try_lock(descriptor, shared=False):
            return
        if not _try_lock(descriptor, shared=True):
            break
        # Only openers hold it, and they let go at once.
        _unlock(descriptor)
        await asyncio.sleep(RETRY_AFTER)
    raise _already_running(descriptor)


def _already_running(descriptor: int) -> AlreadyRunning:
    return AlreadyRunning(
        f"another scheduler dispatches this file (process {_read_holder(descriptor)}); "
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
