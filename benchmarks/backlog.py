"""A file with 1,000,000 waiting tasks, filled once per run and shared by the measurements that need one."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

from benchmarks.measuring import Settings, flush_to_disk
from benchmarks.workload import domain, fill
from taskmill import Scheduler

CHUNK = 10_000


def deep_file(settings: Settings) -> Path:
    """Return the shared file. A measurement that takes tasks out of it must put as many back."""
    return grouped_file(settings, 1)


def grouped_file(settings: Settings, groups: int) -> Path:
    """Return a similar file, with the tasks spread evenly over several groups."""
    folder = settings.folder / f"backlog-{groups}"
    file = folder / "tasks.db"
    if not folder.exists():
        folder.mkdir()
        began = time.perf_counter()
        fill_file(file, settings.backlog, groups)
        took = time.perf_counter() - began
        print(f"  filled {settings.backlog:,} waiting tasks in {took:.0f} s, {size_mb(file):.0f} MB", flush=True)
    return file


def copy_of(file: Path, settings: Settings) -> Path:
    """Return a copy of the file and its log, which may be changed. The file must not be open."""
    copy = settings.new_file("copy")
    for suffix in ("", "-wal"):
        if (part := file.with_name(file.name + suffix)).exists():
            shutil.copyfile(part, copy.with_name(copy.name + suffix))
    flush_to_disk()
    return copy


def fill_file(file: Path, tasks: int, groups: int = 1) -> None:
    async def submit() -> None:
        async with Scheduler(file, domains=[domain]) as scheduler:
            await fill(scheduler, tasks, CHUNK, groups)

    asyncio.run(submit())
    flush_to_disk()


def size_mb(file: Path) -> float:
    return file.stat().st_size / 1e6
