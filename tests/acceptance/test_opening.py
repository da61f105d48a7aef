"""Opening a store to read it changes nothing in it: a dead dispatcher's tasks return when dispatching starts."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from taskmill import Domain, Scheduler, Status, TaskRecord
from tests.both_engines import copied_as_killed
from tests.raw_rows import raw

TABLES = (
    "taskmill_task",
    "taskmill_history",
    "taskmill_setting",
    "taskmill_control",
    "taskmill_type",
    "taskmill_tally",
)


def contents(path: Path) -> dict[str, list[object]]:
    with raw(path) as connection:
        return {table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in TABLES}


async def _left_by_a_killed_dispatcher(domain: Domain, folder: Path) -> tuple[Path, int]:
    """Return the store of a dispatcher that was killed while a handler ran, and the id of the task."""
    begun, go = asyncio.Event(), asyncio.Event()

    @domain.task
    async def work() -> str:
        begun.set()
        await go.wait()
        return "done"

    first, second = folder / "a.db", folder / "b.db"
    async with Scheduler(first, domains=[domain]) as scheduler, scheduler.running():
        handle = await work.submit()
        await begun.wait()
        await handle.record()
        if not copied_as_killed(first, second):
            for file in folder.glob("a.db*"):
                if not file.name.endswith("-dispatch"):
                    shutil.copy(file, folder / file.name.replace("a.db", "b.db"))
        go.set()
    return second, handle.id


@pytest.mark.parametrize("with_handlers", [False, True], ids=["without handlers", "with handlers"])
async def test_opening_to_read_changes_nothing(tmp_path: Path, with_handlers: bool) -> None:
    domain = Domain("d")
    path, id = await _left_by_a_killed_dispatcher(domain, tmp_path)
    before = contents(path)
    async with Scheduler(path, domains=[domain] if with_handlers else []) as scheduler:
        record = await scheduler.get(id)
        snapshot = await scheduler.snapshot()
        await scheduler.tasks()
    assert isinstance(record, TaskRecord)
    assert record.status == Status.RUNNING
    assert not snapshot.has_dispatcher
    assert contents(path) == before


async def test_tasks_left_running_return_when_dispatching_starts(tmp_path: Path) -> None:
    domain = Domain("d")
    path, id = await _left_by_a_killed_dispatcher(domain, tmp_path)
    async with Scheduler(path) as reader, Scheduler(path, domains=[domain]) as scheduler:
        with pytest.raises(TimeoutError):
            await reader.wait(id, timeout=0.05)
        await scheduler.run_until_idle(timeout=20)
        assert (await reader.wait(id, timeout=20)).result == "done"


@pytest.mark.one_engine("the lock file is what is tested")
async def test_opening_to_read_makes_no_lock_file(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with Scheduler(path) as scheduler:
        await scheduler.snapshot()
        assert not Path(f"{path}-dispatch").exists()
