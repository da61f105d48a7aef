"""A full disk, with every amount of free space: everything acknowledged is stored, and nothing refused is."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmill import Context, Domain, Handle, InvalidState, Scheduler, StoreError
from taskmill.store.sqlite.connection import Durability
from tests.acceptance.sqlite_library import sqlite3
from tests.crash.evidence import SEED, rounds_or

pytestmark = pytest.mark.one_engine("the disk of a server is the server's")

SIZES = rounds_or(8)
BLOCK = 4096
MOST_ROOM = 2 << 20


class SmallDisk:
    """A file system in memory with little free space."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def leave(self, room: int) -> None:
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as filler:
            while filler.write(bytes(BLOCK)):
                continue
        with self._filler.open("r+b") as filler:
            filler.truncate(max(0, self._filler.stat().st_size - room))

    def free(self) -> None:
        self._filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)],
            check=True,
            capture_output=True,
            timeout=10,
        )
    except (subprocess.SubprocessError, FileNotFoundError):
        pytest.skip("mounting a small file system is not allowed here")
    yield SmallDisk(folder)
    subprocess.run(["umount", "-l", str(folder)], check=True, timeout=10)


class Life:
    """One scheduler that never restarts: some work before the disk is full, some meanwhile, some afterwards."""

    def __init__(self, path: Path, chance: random.Random, durability: Durability) -> None:
        self._path = path
        self._chance = chance
        self._durability = durability
        self._runs: dict[int, int] = {}
        self._acknowledged: list[Handle[str]] = []
        self._cancelled: set[int] = set()
        self.refused = 0
        self._domain = Domain("d")

        @self._domain.task
        async def work(ctx: Context, payload: str, size: int) -> str:
            self._runs[ctx.task.id] = self._runs.get(ctx.task.id, 0) + 1
            if size % 3 == 0:
                with contextlib.suppress(StoreError):
                    await ctx.save(size=size)
            return "r" * size

        self._work = work

    async def play(self, disk: SmallDisk, room: int) -> None:
        async with Scheduler(
            self._path, domains=[self._domain], durability=self._durability, retention=None
        ) as scheduler:
            async with scheduler.running():
                await self._submit(scheduler, 4)
                disk.leave(room)
                await asyncio.gather(*(self._submit(scheduler, 5) for _ in range(4)))
                disk.free()
                refused = self.refused
                await self._submit(scheduler, 4)
                assert self.refused == refused, "there is space again"
                for handle in self._acknowledged:
                    record = await handle.wait(timeout=30)
                    assert record.ending in ("completed", "cancelled")
            await self._audit(scheduler)

    async def _submit(self, scheduler: Scheduler, count: int) -> None:
        for _ in range(count):
            size = self._chance.choice((1, 300, 3000, 30_000))
            batch = [
                self._work.prepare("p" * self._chance.choice((1, 500, 20_000)), size)
                for _ in range(self._chance.choice((1, 1, 7)))
            ]
            try:
                handles = await scheduler.submit_many(batch)
            except StoreError:
                self.refused += 1
                await asyncio.sleep(0)
                continue
            self._acknowledged += handles
            if self._chance.random() < 0.2:
                with contextlib.suppress(StoreError, InvalidState):
                    if await scheduler.cancel(handles[0].id):
                        self._cancelled.add(handles[0].id)

    async def _audit(self, scheduler: Scheduler) -> None:
        records = {record.id: record for record in await scheduler.history(limit=10_000)}
        assert not await scheduler.tasks(), "all have ended"
        assert records.keys() == {handle.id for handle in self._acknowledged}, "refused tasks were never stored"
        for id, record in records.items():
            if record.ending == "completed":
                assert self._runs[id] == 1, "a verdict that could not be written is written later, without another run"
        assert all(records[id].ending in ("cancelled", "completed") for id in self._cancelled)


@pytest.mark.parametrize("durability", ["full", "process"])
@pytest.mark.timeout(1200)
async def test_a_disk_may_be_full_at_any_size(disk: SmallDisk, durability: Durability) -> None:
    refused = acknowledged = 0
    for number in range(SIZES):
        room = MOST_ROOM * number // SIZES // BLOCK * BLOCK
        path = disk.folder / "tasks.db"
        life = Life(path, random.Random(SEED + number), durability)
        try:
            await life.play(disk, room)
        except BaseException:
            print(f"\n{room} bytes were left; TASKMILL_CRASH_SEED={SEED}")
            raise
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        for file in disk.folder.iterdir():
            file.unlink()
        refused += life.refused
        acknowledged += len(life._acknowledged)
    print(f"\nfull disk, {durability}: {SIZES} sizes, {acknowledged} tasks acknowledged, {refused} requests refused")
    assert refused, "the disk was never full"
