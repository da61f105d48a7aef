"""A file is copied beside itself before it is upgraded; a killed upgrade leaves a usable file."""

from __future__ import annotations

import gzip
import logging
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from taskmill import Scheduler, StoreError
from taskmill.store.sqlite import backup
from taskmill.store.sqlite.migrate import NEWEST_VERSION
from tests.acceptance.command_line import ENVIRONMENT

KEPT = Path(__file__).parent / "kept" / "queue.db.gz"
OLD_VERSION = 5


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "queue.db"
    path.write_bytes(gzip.decompress(KEPT.read_bytes()))
    return path


def copy_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.before-schema-{NEWEST_VERSION}.bak")


def contents(file: Path) -> tuple[int, list[tuple[int, str]]]:
    """Return the version of the schema, and the active tasks."""
    raw = sqlite3.connect(file)
    try:
        (version,) = raw.execute("SELECT max(version) FROM taskmill_schema").fetchone()
        return version, raw.execute("SELECT id, payload FROM taskmill_task ORDER BY id").fetchall()
    finally:
        raw.close()


async def test_an_upgrade_first_copies_the_file_as_it_was(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = contents(file)
    with caplog.at_level(logging.WARNING, "taskmill"):
        async with Scheduler(file):
            pass
    assert before[0] == OLD_VERSION
    assert contents(copy_of(file)) == before
    assert contents(file)[0] == NEWEST_VERSION
    assert stat.S_IMODE(copy_of(file).stat().st_mode) == 0o600
    assert str(copy_of(file)) in caplog.text
    made_at = copy_of(file).stat().st_mtime_ns
    async with Scheduler(file):
        pass
    assert copy_of(file).stat().st_mtime_ns == made_at, "the copy is made once, not at each start"


async def test_the_copy_is_a_queue_that_opens(file: Path, tmp_path: Path) -> None:
    async with Scheduler(file) as scheduler:
        counts = (await scheduler.snapshot()).counts
    restored = tmp_path / "restored.db"
    shutil.copy(copy_of(file), restored)
    async with Scheduler(restored) as scheduler:
        assert (await scheduler.snapshot()).counts == counts


async def test_new_and_empty_files_and_memory_are_not_copied(file: Path, tmp_path: Path) -> None:
    raw = sqlite3.connect(file)
    for table in ("taskmill_task", "taskmill_history", "taskmill_cron"):
        raw.execute(f"DELETE FROM {table}")
    raw.commit()
    raw.close()
    async with Scheduler(file), Scheduler(tmp_path / "new.db"), Scheduler():
        pass
    assert list(tmp_path.glob("*.bak*")) == []


class Usage(NamedTuple):
    free: int


def _little_room(_folder: Path) -> Usage:
    return Usage(1000)


async def test_without_room_for_the_copy_nothing_is_upgraded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(file)
    monkeypatch.setattr(shutil, "disk_usage", _little_room)
    with pytest.raises(StoreError, match=r"must be upgraded from schema 5.*only 0\.0 MB are free in .*free some space"):
        async with Scheduler(file):
            pass
    assert contents(file) == before
    assert not copy_of(file).exists()


KILLED_AT = {
    "while copying": "backup._sync = die",
    "before the copy has its name": "backup.os.replace = die",
    "before the upgrade": "migrate.statements = die",
    "before the upgrade is committed": "keep = migrate.statements; migrate.statements = lambda x: then_die(keep(x))",
}

DYING = """
import asyncio, os, signal, sys
from taskmill import Scheduler
from taskmill.store.sqlite import backup, migrate

def die(*_given, **_options):
    os.kill(os.getpid(), signal.SIGKILL)

def then_die(statements):
    yield from statements
    die()

{patch}

async def main():
    async with Scheduler(sys.argv[1]):
        print("not killed")

asyncio.run(main())
"""


@pytest.mark.parametrize("point", KILLED_AT)
async def test_a_killed_upgrade_leaves_the_old_file_and_can_be_repeated(file: Path, point: str) -> None:
    before = contents(file)
    program = DYING.format(patch=KILLED_AT[point])
    killed = subprocess.run(
        [sys.executable, "-c", program, file], check=False, env=ENVIRONMENT, capture_output=True, text=True, timeout=60
    )
    assert (killed.returncode, killed.stdout) == (-9, "")
    assert contents(file) == before
    if copy_of(file).exists():
        assert contents(copy_of(file)) == before
    async with Scheduler(file):
        pass
    assert contents(file)[0] == NEWEST_VERSION
    assert contents(copy_of(file)) == before
    assert sorted(os.listdir(file.parent)) == ["queue.db", copy_of(file).name], "nothing incomplete is left"


async def test_two_processes_that_upgrade_at_once_make_one_copy(file: Path) -> None:
    before = contents(file)
    program = DYING.format(patch="")
    both = [
        subprocess.Popen([sys.executable, "-c", program, file], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate()[0] for process in both] == ["not killed\n"] * 2
    assert contents(copy_of(file)) == before
    assert contents(file)[0] == NEWEST_VERSION


def test_a_damaged_file_is_not_copied(file: Path, tmp_path: Path) -> None:
    content = bytearray(file.read_bytes())
    content[5 * 4096 : 5 * 4096 + 100] = b"\xff" * 100
    file.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        backup.back_up(str(file), str(tmp_path / "copy.db"))
    assert list(tmp_path.glob("copy*")) == []
