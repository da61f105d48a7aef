"""Commands that only read change nothing, and report what a dead process has left."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from taskmill import Domain, Retry, Scheduler
from tests.acceptance.command_line import Here
from tests.both_engines import Engine, copied_as_killed
from tests.raw_rows import raw

pytestmark = pytest.mark.timeout(60)

LOOKING = {
    "status": [],
    "ls": [],
    "stats": ["d::work"],
    "show": ["1"],
    "why": ["2"],
    "graph": ["2"],
    "groups": [],
    "cron": [],
    "nodes": [],
    "rate": [],
    "doctor": [],
    "watch": ["1"],
}
"""Each command that only reads, with its arguments after the store; task 1 has ended, task 2 was left running."""

TABLES = ("taskmill_task", "taskmill_history", "taskmill_setting", "taskmill_control", "taskmill_type")


async def _leave(folder: Path) -> None:
    """Create ``left.db``: the store of a dispatcher that was killed while a handler ran."""
    domain = Domain("d")
    begun, go = asyncio.Event(), asyncio.Event()

    @domain.task(retry=Retry.none())
    async def work(n: int) -> None:
        if n:
            begun.set()
            await go.wait()

    first = folder / "first.db"
    async with Scheduler(first, domains=[domain]) as scheduler, scheduler.running():
        await (await work.submit(0)).result()
        left = await work.options(label="left alone").submit(1)
        await begun.wait()
        await left.record()
        await work.options(run_after=3600).submit(2)
        if not copied_as_killed(first, folder / "left.db"):
            for file in folder.glob("first.db*"):
                shutil.copy(file, folder / file.name.replace("first", "left"))
        go.set()


@pytest.fixture
def left(tmp_path: Path) -> Path:
    asyncio.run(_leave(tmp_path))
    return tmp_path / "left.db"


def content(store: Path, engine: Engine) -> object:
    """Return every byte of the files, or the rows of the tables."""
    if not engine.is_postgres:
        files = sorted(store.parent.glob(f"{store.name}*"))
        # The -shm file is an index of the log, in memory that processes share.
        return {file.name: file.read_bytes() for file in files if not file.name.endswith("-shm")}
    with raw(store) as connection:
        return {table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in TABLES}


@pytest.mark.parametrize("command", LOOKING)
def test_looking_at_what_a_killed_process_left_changes_nothing(
    here: Here, left: Path, engine: Engine, command: str
) -> None:
    before = content(left, engine)
    done = here.run(command, left, *LOOKING[command])
    # A task without a node is a problem for the doctor.
    assert (done.wrong, done.code) == ("", 1 if command == "doctor" and engine.is_postgres else 0)
    assert content(left, engine) == before


@pytest.mark.parametrize("command", LOOKING)
def test_looking_at_a_closed_store_changes_nothing(here: Here, file: Path, engine: Engine, command: str) -> None:
    after = {"stats": ["sync::send"], "why": ["4"]}.get(command, LOOKING[command])
    before = content(file, engine)
    done = here.run(command, file, *after)
    assert (done.wrong, done.code) == ("", 0)
    assert content(file, engine) == before


@pytest.mark.parametrize("command", LOOKING)
def test_an_older_schema_is_left_as_it_is_and_the_command_says_what_to_do(
    here: Here, file: Path, engine: Engine, command: str
) -> None:
    with raw(file) as connection:
        connection.execute("DELETE FROM taskmill_schema WHERE version = (SELECT max(version) FROM taskmill_schema)")
    before = content(file, engine)
    said = here.refusal(command, file, *LOOKING[command], code=2)
    assert "has schema" in said
    assert "scheduler" in said
    assert content(file, engine) == before


def test_a_task_whose_process_is_gone_is_shown_as_such(here: Here, left: Path) -> None:
    gone = "its process is gone; the task starts again when a scheduler dispatches"
    assert gone in here("why", left, 2)
    assert gone in here("show", left, 2)
    assert "1 task was left by a process that is gone" in here("status", left)
    assert "process is gone" in here("ls", left)
    (task,) = [task for task in here.answer("ls", left) if task["id"] == 2]
    assert (task["status"], task["process_is_gone"]) == ("running", True)
    assert here.answer("status", left)["left_behind"] == [2]
