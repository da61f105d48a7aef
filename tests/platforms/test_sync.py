"""On macOS a sync flushes the cache of the drive; elsewhere ``fdatasync`` or ``fsync`` does."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from taskmill.store.sqlite import connection
from taskmill.store.sqlite.log import forcing

F_FULLFSYNC = 51


class Drive:
    """The module ``fcntl`` of macOS: it records the calls, and fails if the test says so."""

    F_FULLFSYNC = F_FULLFSYNC

    def __init__(self, failure: int | None = None) -> None:
        self.asked: list[tuple[int, int]] = []
        self._failure = failure

    def fcntl(self, descriptor: int, command: int) -> int:
        self.asked.append((descriptor, command))
        if self._failure is not None:
            raise OSError(self._failure, os.strerror(self._failure))
        return 0


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    yield opened
    os.close(opened)


@pytest.fixture
def plain_syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The descriptors that ``os.fsync`` has synced."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    return synced


def test_a_sync_on_macos_empties_the_cache_of_the_drive(descriptor: int, plain_syncs: list[int]) -> None:
    drive = Drive()
    forcing(drive)(descriptor)
    assert drive.asked == [(descriptor, F_FULLFSYNC)]
    assert plain_syncs == []


@pytest.mark.parametrize("failure", [errno.ENOTSUP, errno.ENOTTY, errno.EINVAL])
def test_a_file_system_without_the_full_sync_gets_a_plain_one(
    descriptor: int, plain_syncs: list[int], failure: int
) -> None:
    forcing(Drive(failure))(descriptor)
    assert plain_syncs == [descriptor]


def test_a_full_sync_that_fails_on_the_disk_is_a_failed_sync(descriptor: int, plain_syncs: list[int]) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        forcing(Drive(errno.EIO))(descriptor)
    assert plain_syncs == []


@pytest.mark.parametrize("control", [None, SimpleNamespace(LOCK_EX=2)], ids=["windows", "linux"])
def test_systems_without_a_full_sync_use_their_own(control: object) -> None:
    assert forcing(control) is getattr(os, "fdatasync", os.fsync)


def test_checkpoints_are_synced_fully_too(tmp_path: Path) -> None:
    opened = connection.connect(str(tmp_path / "tasks.db"))
    try:
        assert opened.execute("PRAGMA checkpoint_fullfsync").fetchone() == (1,)
    finally:
        opened.close()
