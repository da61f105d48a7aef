"""The dispatch lock on Windows, loaded with a simulated ``msvcrt`` that locks bytes of real files."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import struct
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from taskmill.errors import AlreadyRunning
from taskmill.store.sqlite import dispatch_lock

pytestmark = pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="needs Linux's locks on byte ranges")

LK_UNLCK, LK_NBLCK = 0, 2
BINARY = 1 << 29
NEWLINES = int.from_bytes(b"\n\r\n\n\x1a\n\r\x01", "little")
"""A number whose bytes a file in text mode would change."""


def locking(descriptor: int, mode: int, size: int) -> None:
    """Lock or unlock bytes at the current position, for this open file only, as Windows does."""
    kind = fcntl.F_UNLCK if mode == LK_UNLCK else fcntl.F_WRLCK
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, position, size, 0))


class Opened:
    """``os.open`` of Windows: it knows O_BINARY, and records files that were opened in text mode."""

    def __init__(self) -> None:
        self.as_text: list[str] = []
        self._open = os.open

    def __call__(self, path: Any, flags: int, *mode: int) -> int:
        if not flags & BINARY and str(path).endswith("-dispatch") and flags & os.O_RDWR:
            self.as_text.append(str(path))
        return self._open(path, flags & ~BINARY, *mode)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    files = Opened()
    monkeypatch.setattr(os, "O_BINARY", BINARY, raising=False)
    monkeypatch.setattr(os, "open", files)
    return files


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch, opened: Opened) -> ModuleType:
    """The module of the lock as Windows loads it."""
    msvcrt = SimpleNamespace(locking=locking, LK_NBLCK=LK_NBLCK, LK_UNLCK=LK_UNLCK)
    monkeypatch.setitem(sys.modules, "msvcrt", msvcrt)
    monkeypatch.setattr(sys, "platform", "win32")
    spec = importlib.util.spec_from_file_location("dispatch_lock_on_windows", dispatch_lock.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def database(tmp_path: Path) -> str:
    return str(tmp_path / "tasks.db")


async def test_a_second_dispatcher_is_refused_and_told_which_process_dispatches(
    windows: ModuleType, database: str
) -> None:
    lock = await windows.acquire(database)
    with pytest.raises(AlreadyRunning, match=f"process {os.getpid()}"):
        await windows.acquire(database)
    assert windows.holder(database) == str(os.getpid())
    lock.release()
    assert windows.holder(database) is None


async def test_the_lock_is_free_again_after_its_release(windows: ModuleType, database: str) -> None:
    (await windows.acquire(database)).release()
    second = await windows.acquire(database)
    second.release()


async def test_only_the_lock_file_is_locked(windows: ModuleType, database: str) -> None:
    Path(database + "-wal").write_bytes(b"")
    lock = await windows.acquire(database)
    assert len(lock.inheritable()) == 1
    lock.release()


async def test_beginnings_are_written_and_read_byte_for_byte(
    windows: ModuleType, database: str, opened: Opened
) -> None:
    lock = await windows.acquire(database)
    lock.note_beginnings([(NEWLINES, 26, 10)])
    assert lock.beginnings() == [(NEWLINES, 26, 10)]
    assert windows.holder(database) == str(os.getpid()), "the header is still readable"
    lock.release()
    assert opened.as_text == [], "text mode would insert bytes"
