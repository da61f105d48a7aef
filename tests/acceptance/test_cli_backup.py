"""``taskmill backup`` makes a consistent copy of a live file, or none."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import stat
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from taskmill import ConfigError, Domain, Scheduler
from taskmill.backup import back_up
from taskmill.store.sqlite import backup as copying
from tests.acceptance.command_line import ENVIRONMENT, Here, taskmill
from tests.acceptance.terminal import needs_a_terminal, on_terminal, without_colours
from tests.both_engines import name_of
from tests.postgres.schemas import Schemas
from tests.warm_python import run as warm_run

pytestmark = [pytest.mark.timeout(60), pytest.mark.one_engine("a file is copied; a server has its own tools")]


async def test_a_file_is_copied_while_a_dispatcher_writes_to_it(tmp_path: Path) -> None:
    file, box = tmp_path / "tasks.db", Domain("box")
    enough = asyncio.Event()

    @box.task
    async def put(n: int) -> int:
        return n

    async def submit_on() -> None:
        number = 0
        while not enough.is_set():
            await put.submit(number)
            number += 1

    copies = [tmp_path / f"copy{number}" for number in range(3)]
    async with Scheduler(file, domains=[box], durability="process", retention=None) as scheduler, scheduler.running():
        submitting = asyncio.create_task(submit_on())
        for copy in copies:
            before = await scheduler.count(status="completed")
            done = await asyncio.to_thread(taskmill, "backup", file, copy)
            assert (done.returncode, done.stderr) == (0, "")
            assert await scheduler.count(status="completed") > before, "tasks were run meanwhile"
        enough.set()
        await submitting
        highest = max(record.id for record in [*await scheduler.tasks(), *await scheduler.history()])
    for copy in copies:
        async with Scheduler(copy, domains=[box], retention=None) as scheduler:
            await scheduler.run_until_idle()
            ended = sorted(record.id for record in await scheduler.history())
        assert ended == list(range(1, len(ended) + 1)), "every task once, up to the moment of the copy"
        assert 0 < len(ended) < highest


def test_it_says_what_the_copy_has(here: Here, file: Path, tmp_path: Path) -> None:
    said = here("backup", file, tmp_path / "copy")
    assert said.splitlines()[0] == f"copied {file} to {tmp_path / 'copy'} and checked the copy"
    assert "4 active tasks and 3 ended tasks" in said
    answer = here.answer("backup", file, tmp_path / "other")
    assert answer["rows"]["taskmill_task"] == 4
    assert answer["bytes"] == (tmp_path / "other").stat().st_size
    assert here.answer("ls", tmp_path / "copy") == here.answer("ls", file)


def test_the_store_may_come_from_the_environment(
    here: Here, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "TASKMILL_STORE" in here.refusal("backup", tmp_path / "copy", code=2)
    monkeypatch.setenv("TASKMILL_STORE", str(file))
    assert "checked" in here("backup", tmp_path / "copy")
    assert "takes the database and the name" in here.refusal("backup", file, tmp_path / "b", tmp_path / "c", code=2)


def test_nothing_is_overwritten_by_mistake(here: Here, file: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("precious")
    assert here.refusal("backup", file, precious, code=1).endswith("give another name, or replace it with --force")
    assert precious.read_text() == "precious"
    assert "belongs to the queue itself" in here.refusal("backup", file, file, "--force", code=2)
    assert "belongs to the queue itself" in here.refusal("backup", file, f"{file}-wal", "--force", code=2)
    assert "is a folder" in here.refusal("backup", file, tmp_path, code=2)
    assert "create it first" in here.refusal("backup", file, tmp_path / "none" / "copy", code=2)
    here("backup", file, precious, "--force")
    assert precious.read_bytes().startswith(b"SQLite format 3")
    assert stat.S_IMODE(precious.stat().st_mode) == 0o600


def test_a_log_left_beside_the_name_of_the_copy_is_not_applied_to_it(here: Here, file: Path, tmp_path: Path) -> None:
    (tmp_path / "copy-wal").write_bytes(b"of another database")
    assert "copy-wal exists" in here.refusal("backup", file, tmp_path / "copy", "--force", code=1)
    assert not (tmp_path / "copy").exists()


def test_a_server_is_refused_with_a_hint(here: Here, schemas: Schemas, tmp_path: Path) -> None:
    assert "pg_dump" in here.refusal("backup", schemas.address("nothing"), tmp_path / "copy", code=2)
    assert list(tmp_path.iterdir()) == []


class Usage(NamedTuple):
    free: int


def _little_room(_folder: Path) -> Usage:
    return Usage(1000)


def test_without_room_no_copy_is_begun(here: Here, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", _little_room)
    assert "MB are free" in here.refusal("backup", file, tmp_path / "copy", code=2)
    assert not (tmp_path / "copy").exists()


def test_a_killed_backup_leaves_no_copy_under_its_name(file: Path, tmp_path: Path) -> None:
    dying = f"""
import os, signal
from taskmill import backup
backup.back_up({str(file)!r}, {str(tmp_path / "copy")!r}, watch=lambda *_: os.kill(os.getpid(), signal.SIGKILL))
"""
    done = warm_run([sys.executable, "-c", dying], check=False, env=ENVIRONMENT, timeout=60)
    assert done.returncode == -9
    assert not (tmp_path / "copy").exists()
    back_up(file, tmp_path / "copy")


def test_an_interrupted_or_failed_backup_leaves_nothing(
    here: Here, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(copying, "_sync", interrupt)
    assert here.run("backup", file, tmp_path / "copy").code == 130
    assert [name for name in os.listdir(tmp_path) if name.startswith("copy")] == []


def test_ids_of_rolled_back_transactions_are_not_given_again_by_a_copy(file: Path, tmp_path: Path) -> None:
    file.with_name(f"{file.name}-ids").write_text("00000000000000004711")
    back_up(file, tmp_path / "copy")
    raw = sqlite3.connect(tmp_path / "copy")
    assert raw.execute("SELECT seq FROM sqlite_sequence WHERE name = 'taskmill_task'").fetchone() == (4711,)
    raw.close()


@pytest.mark.parametrize("bad", [5, "", None, b"x", "a\0b"])
def test_a_value_that_is_no_file_name_is_refused(file: Path, bad: object) -> None:
    with pytest.raises(ConfigError, match="file must be a file name"):
        back_up(file, bad)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="store must be a file name"):
        back_up(bad, file)  # type: ignore[arg-type]


@needs_a_terminal
@pytest.mark.parametrize("columns", [80, 120])
def test_on_a_terminal_a_bar_is_drawn_and_erased(file: Path, tmp_path: Path, columns: int) -> None:
    with on_terminal(tmp_path, "backup", file, tmp_path / "copy", columns=columns) as terminal:
        seen = without_colours(terminal.rest())
        assert terminal.process.wait() == 0
    assert "copying" in seen
    assert "and checked the copy" in seen


def test_the_program_prints_json(file: Path, tmp_path: Path) -> None:
    done = taskmill("backup", file, tmp_path / "copy", "--json")
    assert json.loads(done.stdout)["file"] == name_of(tmp_path / "copy")
