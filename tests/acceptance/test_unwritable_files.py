"""Read-only files and full disks: a clear error, and nothing acknowledged is lost.

Run as a program, this file is the child process that some tests need: one of an unprivileged user, and one that
may not write large files.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from taskmill import Domain, Scheduler, StoreError
from taskmill.testing import ManualClock
from tests.acceptance.box import MIB, box, put, unchanged
from tests.acceptance.sqlite_library import sqlite3
from tests.warm_python import run as warm_run

pytestmark = pytest.mark.one_engine("files and folders are what is tested")

ROOT = Path(__file__).parents[2]
NOBODY = 65534


async def _open_and_close(path: Path) -> None:
    async with Scheduler(path, domains=[box]):
        pass


# Read-only


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that an unprivileged user can reach; pytest's own folders are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="taskmill-"))
    folder.chmod(0o755)
    yield folder
    for entry in (folder, *folder.rglob("*")):
        entry.chmod(0o755)
    shutil.rmtree(folder)


def _as_script(*arguments: str) -> str:
    done = warm_run(
        [sys.executable, "-m", __name__, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout).strip()


async def _try_to_use(path: str) -> None:
    """Become the user ``nobody`` in a child process, then use the file."""
    # Load everything first: that user may not be able to read the files of the interpreter.
    with tempfile.TemporaryDirectory() as elsewhere:
        async with Scheduler(f"{elsewhere}/tasks.db", domains=[box]) as scheduler:
            await put.submit("loaded")
            await scheduler.run_until_idle(timeout=10)
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        async with Scheduler(path, domains=[box]) as scheduler:
            handle = await put.submit("written")
            await scheduler.run_until_idle(timeout=10)
            print("result", await handle.result())
    except Exception as wrong:
        print(type(wrong).__name__, wrong)


async def test_a_read_only_file_is_refused(open_folder: Path) -> None:
    path = open_folder / "tasks.db"
    await _open_and_close(path)
    open_folder.chmod(0o777)
    path.chmod(0o444)
    with unchanged(path):
        said = _as_script("use", str(path))
    assert said.startswith("StoreError")
    assert str(path) in said
    assert "read-only" in said


async def test_a_read_only_folder_is_refused(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    said = _as_script("use", str(open_folder / "tasks.db"))
    assert said.startswith("StoreError")
    assert str(open_folder) in said
    assert list(open_folder.iterdir()) == []


async def test_a_database_in_a_read_only_folder_is_refused(open_folder: Path) -> None:
    path = open_folder / "tasks.db"
    await _open_and_close(path)
    for entry in open_folder.iterdir():
        entry.chmod(0o666)
    open_folder.chmod(0o555)
    with unchanged(path):
        said = _as_script("use", str(path))
    assert said.startswith("StoreError")
    assert str(path) in said


def test_an_unprivileged_user_can_use_a_file_of_its_own(open_folder: Path) -> None:
    open_folder.chmod(0o777)
    assert _as_script("use", str(open_folder / "tasks.db")) == "result 7"


# A full disk


class Disk(Protocol):
    folder: Path

    def fill(self) -> None: ...
    def free(self) -> None: ...


class SmallDisk:
    """A file system in memory with little space."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as filler:
            while filler.write(b"\0" * 4096):
                continue

    def free(self) -> None:
        self._filler.unlink()


class LimitedFiles:
    """A limit on the size of files; it applies to the whole process, so use it in a child process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        largest = max(entry.stat().st_size for entry in self.folder.iterdir())
        self._limit(largest)

    def free(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


def _active_ids(path: Path) -> set[int]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {id for (id,) in connection.execute("SELECT id FROM taskmill_task")}


async def submitting(disk: Disk) -> None:
    """Refused submissions raise StoreError and are not stored; after space is freed, submissions work again."""
    path = disk.folder / "tasks.db"
    async with Scheduler(path, domains=[box]) as scheduler:
        acknowledged = {(await put.submit("before")).id}
        disk.fill()
        refusals: list[str] = []
        for size in (200_000, 20_000, 1, 1):
            try:
                acknowledged.add((await put.submit("a" * size)).id)
            except StoreError as wrong:
                refusals.append(str(wrong))
        try:
            batch = await scheduler.submit_many([put.prepare("a" * 50_000) for _ in range(4)])
            acknowledged.update(handle.id for handle in batch)
        except StoreError as wrong:
            refusals.append(str(wrong))
        assert refusals
        assert all(str(path) in said for said in refusals)
        assert {record.id for record in await scheduler.tasks()} == acknowledged
        disk.free()
        assert _active_ids(path) == acknowledged
        handle = await put.submit("after")
        await scheduler.run_until_idle(timeout=10)
        assert await handle.result() == 5
        ended = await scheduler.history(status="completed")
        assert {record.id for record in ended} == {*acknowledged, handle.id}


async def dispatching(disk: Disk) -> None:
    """A handler that ends while nothing can be written has run once; its end is recorded when there is space."""
    path = disk.folder / "tasks.db"
    domain = Domain("busy")
    release = asyncio.Event()
    calls: list[int] = []

    @domain.task
    async def work(n: int) -> str:
        calls.append(n)
        await release.wait()
        return "done " + "!" * 200_000

    clock = ManualClock()
    async with Scheduler(path, domains=[domain], clock=clock) as scheduler, scheduler.running():
        handles = [await work.submit(n) for n in range(3)]
        await clock.advance(0)
        assert calls == [0, 1, 2]
        disk.fill()
        release.set()
        await clock.advance(5)
        assert [record.status for record in await scheduler.tasks()] == ["running"] * 3
        disk.free()
        await clock.advance(5)
        for handle in handles:
            assert (await handle.result(timeout=1)).startswith("done")
        assert calls == [0, 1, 2]
        later = await work.submit(3)
        await clock.advance(5)
        assert (await later.wait(timeout=1)).attempt == 1


async def checkpointing(disk: Disk) -> None:
    """The log has space and the database has none: every call returns, and nothing acknowledged is lost."""
    path = disk.folder / "tasks.db"
    async with Scheduler(path, domains=[box]) as scheduler:
        acknowledged: set[int] = set()

        async def submit(size: int, times: int) -> None:
            for _ in range(times):
                try:
                    acknowledged.add((await put.submit("a" * size)).id)
                except StoreError:
                    await asyncio.sleep(0)

        async with asyncio.timeout(5):
            await asyncio.gather(submit(MIB - 100, 12), submit(10, 100), submit(10, 100))
        assert {record.id for record in await scheduler.tasks()} == acknowledged
    assert _active_ids(path) == acknowledged


async def standing(disk: Disk) -> None:
    """Work that needs no additional space can continue forever: the log is reused."""
    path = disk.folder / "tasks.db"
    async with Scheduler(path, domains=[box]) as scheduler:
        handle = await put.submit("here")
        for number in range(600):
            await scheduler.set_priority(handle.id, number % 100)
        assert (await scheduler.get(handle.id)).priority == 599 % 100


async def opening(disk: Disk) -> None:
    """A full disk at the start is an error of the store, and the file can be opened later."""
    path = disk.folder / "tasks.db"
    disk.fill()
    with pytest.raises(StoreError, match=re.escape(str(path))):
        await _open_and_close(path)
    disk.free()
    await _open_and_close(path)


SCENARIOS = {scenario.__name__: scenario for scenario in (submitting, dispatching, checkpointing, standing, opening)}


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    size = "12m" if request.node.callspec.params["scenario"] == "checkpointing" else "2m"
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        mounted = warm_run(mount, capture_output=True, check=False, timeout=10).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small file system is not allowed here")
    yield SmallDisk(folder)
    warm_run(["umount", "-l", str(folder)], check=True, timeout=10)


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_full_disk_loses_nothing_and_leaves_nothing_behind(scenario: str, small_disk: Disk) -> None:
    await SCENARIOS[scenario](small_disk)


@pytest.mark.parametrize("scenario", ["submitting", "dispatching"])
def test_files_that_cannot_grow_lose_nothing_and_leave_nothing_behind(scenario: str, tmp_path: Path) -> None:
    assert _as_script(scenario, str(tmp_path)) == "survived"


async def _play(part: str, where: str) -> None:
    if part == "use":
        await _try_to_use(where)
    else:
        await SCENARIOS[part](LimitedFiles(Path(where)))
        print("survived")


if __name__ == "__main__":
    asyncio.run(_play(*sys.argv[1:]))
