"""One failed fdatasync: Linux marks the pages clean, so a later sync that succeeds proves nothing about them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmill import Domain, Scheduler, StoreError
from taskmill.core.clock import SystemClock
from taskmill.events import Event, TaskCompleted
from taskmill.model.filters import Filters
from taskmill.store.sqlite import log as log_module
from taskmill.store.sqlite.store import SqliteStore
from tests.store.contract import new_task

BLOCK = 4096


class Disk:
    """The log as a power cut would leave it: a block is on the disk after a sync that succeeds after its write.

    A failed sync marks all earlier writes as clean, as Linux does. Only another write makes them dirty again.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._log = Path(f"{database}-wal")
        self._seen = b""
        self._kept = bytearray()
        self._written: set[int] = set()
        self._lock = threading.Lock()
        self.refusals: list[int] = []
        """Error numbers with which the next syncs fail."""
        self.always: int | None = None
        self.syncs = 0

    def force(self, descriptor: int) -> None:
        with self._lock:
            self.syncs += 1
            content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
            dirty = self._written | {
                start
                for start in range(0, len(content), BLOCK)
                if content[start : start + BLOCK] != self._seen[start : start + BLOCK]
            }
            self._seen, self._written = content, set()
            number = self.refusals.pop(0) if self.refusals else self.always
            if number is not None:
                raise OSError(number, os.strerror(number))
            self._kept += bytes(max(0, len(content) - len(self._kept)))
            for start in dirty:
                self._kept[start : start + BLOCK] = content[start : start + BLOCK]

    def write(self, descriptor: int, content: bytes) -> int:
        start = os.lseek(descriptor, 0, os.SEEK_CUR)
        written = os.write(descriptor, content)
        self._written.update(range(start - start % BLOCK, start + written, BLOCK))
        return written

    def after_power_cut(self, where: Path) -> set[int]:
        """Return the ids of the tasks that are found after a power cut."""
        shutil.copy(self._database, where)
        Path(f"{where}-wal").write_bytes(self._kept)
        with contextlib.closing(sqlite3.connect(where)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            return {id for (id,) in connection.execute("SELECT id FROM taskmill_task")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.db"


@pytest.fixture
def disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(path)
    monkeypatch.setattr(log_module, "_force", disk.force)
    monkeypatch.setattr(log_module, "_write", disk.write, raising=False)
    yield disk
    disk.always = None


async def _opened(path: Path) -> SqliteStore:
    """Return a store whose tables are in the file, and whose log is empty."""
    for last in (False, True):
        store = SqliteStore(path, "full", SystemClock())
        await store.open()
        if last:
            return store
        await store.add([new_task()])
        await store.close()
    raise AssertionError


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
async def test_a_task_acknowledged_after_a_failed_sync_survives_a_power_cut(
    path: Path, tmp_path: Path, disk: Disk, number: int
) -> None:
    store = await _opened(path)
    acknowledged: set[int] = set()
    for round in range(20):
        if round == 10:
            disk.refusals = [number]
        with contextlib.suppress(StoreError):
            acknowledged.update(stored.id for stored in await store.add([new_task(), new_task()]))
    lost = acknowledged - disk.after_power_cut(tmp_path / "after.db")
    await store.close()
    assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged tasks are lost"


async def test_a_request_whose_sync_fails_is_acknowledged_once_the_log_is_on_the_disk_after_all(
    path: Path, tmp_path: Path, disk: Disk
) -> None:
    store = await _opened(path)
    disk.refusals = [errno.EIO, errno.EIO]
    (stored,) = await store.add([new_task()])
    assert not disk.refusals, "the sync, and the first attempt to repair it, failed"
    assert stored.id in disk.after_power_cut(tmp_path / "after.db")
    await store.close()


async def test_the_log_that_a_store_finds_is_written_again_before_anything_is_acknowledged(
    path: Path, tmp_path: Path, disk: Disk
) -> None:
    """The process with the failed sync may be dead, and a descriptor that is opened later does not report it."""
    first = await _opened(path)
    await first.add([new_task()])
    disk.always = errno.EIO
    with pytest.raises(StoreError):
        await first.add([new_task()])
    disk.always = None
    second = SqliteStore(path, "full", SystemClock())
    await second.open()
    (stored,) = await second.add([new_task()])
    assert stored.id in disk.after_power_cut(tmp_path / "after.db")
    await second.close()
    await first.close()


async def test_a_disk_that_keeps_refusing_closes_the_store(path: Path, disk: Disk) -> None:
    store = await _opened(path)
    disk.always = errno.EIO
    with pytest.raises(StoreError, match="may or may not be stored"):
        await store.add([new_task()])
    disk.always = None
    before = _rows(path)
    with pytest.raises(StoreError, match=r"closed.*nothing was stored.*open it again"):
        await store.add([new_task()])
    with pytest.raises(StoreError, match="closed"):
        await store.cancel([1], 0)
    with pytest.raises(StoreError, match="closed"):
        await store.durable()
    with pytest.raises(StoreError, match="closed"):
        await store.count(Filters())
    assert _rows(path) == before
    await store.close()
    again = SqliteStore(path, "full", SystemClock())
    await again.open()
    await again.add([new_task()])
    await again.close()


async def test_a_disk_without_space_for_a_sync_is_no_reason_to_restart(path: Path, tmp_path: Path, disk: Disk) -> None:
    store = await _opened(path)
    disk.always = errno.ENOSPC
    with pytest.raises(StoreError, match="may or may not be stored"):
        await store.add([new_task()])
    before = _rows(path)
    with pytest.raises(StoreError, match="nothing was stored"):
        await store.add([new_task()])
    assert _rows(path) == before
    disk.always = None
    (stored,) = await store.add([new_task()])
    assert stored.id in disk.after_power_cut(tmp_path / "after.db")
    await store.close()


async def test_a_log_that_cannot_be_read_back_closes_the_store(
    path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems drop what they could not write: then the log differs from what was committed."""
    store = await _opened(path)
    await store.add([new_task()])
    really_force = disk.force

    def lose(descriptor: int) -> None:
        monkeypatch.setattr(log_module, "_force", really_force)
        with Path(f"{path}-wal").open("r+b") as log:
            log.seek(-2000, os.SEEK_END)
            log.write(b"\xff" * 500)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(log_module, "_force", lose)
    with pytest.raises(StoreError, match="may or may not be stored"):
        await store.add([new_task()])
    with pytest.raises(StoreError, match="closed"):
        await store.add([new_task()])
    await store.close()


class _RefusedOnce:
    """The connection that copies the log back, with a sync that fails."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._refused = False

    def execute(self, sql: str) -> sqlite3.Cursor:
        if not self._refused:
            self._refused = True
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(sql)

    def close(self) -> None:
        self._connection.close()


async def test_a_sync_that_fails_inside_a_checkpoint_counts_as_one(
    path: Path, tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await _opened(path)
    await store.add([new_task()])
    log = store._writer._log
    assert log is not None
    monkeypatch.setattr(log, "_checkpointer", _RefusedOnce(log._checkpointer))
    assert not log.in_doubt
    store._writer._checkpoint()
    assert log.in_doubt
    (stored,) = await store.add([new_task()])
    assert not log.in_doubt
    assert stored.id in disk.after_power_cut(tmp_path / "after.db")
    await store.close()


async def test_an_ending_is_announced_only_once_the_disk_has_it(path: Path, disk: Disk) -> None:
    domain = Domain("d")
    heard: list[Event] = []

    submitted = asyncio.Event()

    @domain.task
    async def work() -> None:
        await submitted.wait()
        disk.always = errno.ENOSPC

    async with Scheduler(path, domains=[domain]) as scheduler, scheduler.running():
        events = scheduler.events(TaskCompleted)
        handle = await work.submit()
        submitted.set()
        hearing = asyncio.ensure_future(anext(events))
        early = asyncio.ensure_future(handle.result())
        while _ended(path) == 0:
            await asyncio.sleep(0.01)
        late = asyncio.ensure_future(handle.result())
        seen = disk.syncs
        while disk.syncs < seen + 8:
            await asyncio.sleep(0.01)
        assert not hearing.done()
        assert not early.done()
        assert not late.done()
        disk.always = None
        heard.append(await asyncio.wait_for(hearing, 10))
        await asyncio.wait_for(asyncio.gather(early, late), 10)
    assert [type(event) for event in heard] == [TaskCompleted]


async def test_a_dispatcher_whose_store_is_closed_by_the_disk_stops_with_that_error(path: Path, disk: Disk) -> None:
    domain = Domain("d")

    submitted = asyncio.Event()

    @domain.task
    async def work() -> None:
        await submitted.wait()
        disk.always = errno.EIO

    async with Scheduler(path, domains=[domain]) as scheduler:
        running = asyncio.ensure_future(scheduler.run())
        handle = await work.submit()
        submitted.set()
        with pytest.raises(StoreError, match=r"closed|may or may not"):
            await asyncio.wait_for(handle.result(), 10)
        with pytest.raises(StoreError, match="closed"):
            await asyncio.wait_for(running, 10)


def _rows(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM taskmill_task").fetchone()
        assert isinstance(count, int)
        return count


def _ended(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM taskmill_history").fetchone()
        assert isinstance(count, int)
        return count
