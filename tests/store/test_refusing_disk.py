"""A real disk that refuses a sync: ext4 on a loop device whose backing store has no space for the data."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmill.core.clock import SystemClock
from taskmill.store.sqlite import log
from taskmill.store.sqlite.store import SqliteStore
from tests.store.contract import new_task

MIB = 1 << 20
PAYLOAD = '"' + "x" * 9000 + '"'


class ThinDisk:
    """A file system whose blocks are allocated when they are first written, if there is space left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._backing, self.mounted, self._after = (folder / name for name in ("backing", "disk", "after"))
        self._image = self._backing / "image"
        self._filler = self._backing / "filler"
        self._mounts = contextlib.ExitStack()

    def __enter__(self) -> ThinDisk:
        self._mount("tmpfs", self._backing, "-t", "tmpfs", "-o", f"size={40 * MIB},huge=never")
        self._image.write_bytes(bytes(32 * MIB))
        # Everything but data is allocated from the start: only data is refused.
        _run("mkfs.ext4", "-q", "-O", "^has_journal", "-E", "nodiscard,lazy_itable_init=0", str(self._image))
        self._mount(str(self._image), self.mounted, "-o", "loop")
        return self

    def __exit__(self, *_: object) -> None:
        self._mounts.close()

    def _mount(self, what: str, where: Path, *options: str) -> None:
        where.mkdir()
        _run("mount", *options, what, str(where))
        self._mounts.callback(_run, "umount", "-l", str(where))

    def trim(self) -> None:
        """Release the space of unused blocks."""
        os.sync()
        _run("fstrim", str(self.mounted))

    def refuse(self) -> None:
        """Refuse writes to blocks that are not allocated yet."""
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                continue

    def relent(self) -> None:
        self._filler.unlink()

    def tasks_after_power_cut(self, database: Path) -> set[int]:
        """Return the ids of the tasks on the disk, without data that is only in the system's cache."""
        shutil.copy(self._image, self._folder / "cut")
        self._mount(str(self._folder / "cut"), self._after, "-o", "loop")
        for suffix in ("", "-wal"):
            shutil.copy(self._after / (database.name + suffix), self._folder / (database.name + suffix))
        with contextlib.closing(sqlite3.connect(self._folder / database.name)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            return {id for (id,) in connection.execute("SELECT id FROM taskmill_task")}


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[ThinDisk]:
    disk = ThinDisk(tmp_path)
    with contextlib.ExitStack() as mounts:
        try:
            mounts.enter_context(disk)
        except (subprocess.SubprocessError, FileNotFoundError) as wrong:
            disk.__exit__()
            pytest.skip(f"a loop device with ext4 cannot be mounted here: {wrong}")
        yield disk


async def test_a_task_acknowledged_after_a_sync_that_the_disk_refused_survives_a_power_cut(
    disk: ThinDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, refused = asyncio.get_running_loop(), asyncio.Event()
    really_force = log._force

    def force(descriptor: int) -> None:
        try:
            really_force(descriptor)
        except OSError:
            loop.call_soon_threadsafe(refused.set)
            raise

    monkeypatch.setattr(log, "_force", force)
    database = disk.mounted / "tasks.db"
    store = SqliteStore(database, "full", SystemClock())
    await store.open()
    await store.add([new_task()])
    await store.close()
    disk.trim()
    await store.open()
    disk.refuse()
    adding = asyncio.ensure_future(store.add([new_task(PAYLOAD)]))
    waiting = asyncio.ensure_future(refused.wait())
    await asyncio.wait([adding, waiting], timeout=10, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    disk.relent()
    if not refused.is_set():
        await adding
        await store.close()
        pytest.skip("the loop device of this kernel does not report that it has no room")
    acknowledged = {(await adding)[0].id}
    for _ in range(20):
        acknowledged.add((await store.add([new_task(PAYLOAD)]))[0].id)
    found = disk.tasks_after_power_cut(database)
    await store.close()
    assert acknowledged <= found, f"{len(acknowledged - found)} of {len(acknowledged)} acknowledged tasks are lost"
