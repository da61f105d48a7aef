"""Files that are deleted or replaced while they are open: nothing is acknowledged, and no second dispatcher runs."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from taskmill import AlreadyRunning, Domain, HistoryRecord, Scheduler, StoreError
from taskmill.core.clock import SystemClock
from taskmill.store.sqlite.connection import Durability
from taskmill.store.sqlite.store import SqliteStore
from tests.store.contract import new_task


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.db"


def _delete_database(path: Path) -> None:
    path.unlink()


def _delete_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def _delete_everything(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()


def _replace_database(path: Path) -> None:
    """Replace the file, as a restored backup does."""
    shutil.copy(path, f"{path}.backup")
    Path(f"{path}.backup").replace(path)


def _move_database(path: Path) -> None:
    path.rename(f"{path}.moved")


DEEDS = [_delete_database, _delete_log, _delete_everything, _replace_database, _move_database]


@pytest.mark.parametrize("durability", ["full", "process"])
@pytest.mark.parametrize("deed", DEEDS)
async def test_nothing_is_acknowledged_that_would_be_stored_in_a_file_that_is_gone(
    path: Path, deed: Callable[[Path], None], durability: Durability
) -> None:
    store = SqliteStore(path, durability, SystemClock())
    await store.open()
    await store.add([new_task()])
    deed(path)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"deleted, moved or replaced.*open it again"):
            await store.add([new_task()])
    with pytest.raises(StoreError, match="deleted, moved or replaced"):
        await store.cancel([1], 0)
    await store.close()


@pytest.mark.parametrize("deed", DEEDS)
async def test_a_dispatcher_that_has_nothing_to_do_notices_that_its_files_are_gone(
    path: Path, deed: Callable[[Path], None]
) -> None:
    async with Scheduler(path) as scheduler:
        running = asyncio.ensure_future(scheduler.run())
        while not scheduler.is_dispatching:
            await asyncio.sleep(0.01)
        deed(path)
        with pytest.raises(StoreError, match="deleted, moved or replaced"):
            await asyncio.wait_for(running, 10)


async def test_a_path_that_is_relative_names_the_same_file_after_the_folder_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("t.db", "full", SystemClock())
    await store.open()
    monkeypatch.chdir("/")
    await store.add([new_task()])
    await store.close()


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created again"])
async def test_a_second_dispatcher_never_overlaps_though_the_lock_file_is_deleted(
    path: Path, again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    domain = Domain("d")
    started, may_end = asyncio.Event(), asyncio.Event()
    at_once: list[int] = []

    @domain.task
    async def work() -> None:
        at_once.append(len(at_once))
        started.set()
        await may_end.wait()

    async with (
        Scheduler(path, domains=[domain], shutdown_grace=60) as first,
        Scheduler(path) as second,
    ):
        running = asyncio.ensure_future(first.run())
        handle = await first.submit(work.prepare())
        await started.wait()
        lock = Path(f"{path}-dispatch")
        lock.unlink()
        if again:
            lock.touch()
        with pytest.raises(AlreadyRunning):
            await second.run_until_idle(timeout=5)
        assert not running.done()
        while "dispatching stops" not in caplog.text:
            await asyncio.sleep(0.01)
        with pytest.raises(AlreadyRunning):
            await second.run_until_idle(timeout=5)
        may_end.set()
        with pytest.raises(StoreError, match=r"lock file.*deleted, moved or replaced"):
            await asyncio.wait_for(running, 10)
        record = await first.get(handle.id)
        assert isinstance(record, HistoryRecord), "the ending is still recorded"
        assert record.ending == "completed"
        await second.run_until_idle(timeout=10)
    assert at_once == [0]
