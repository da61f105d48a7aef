"""A new database file: it appears with all of its tables or not at all, and what is there already stays."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from taskmill import Scheduler
from taskmill.store.sqlite import migrate as migrating
from taskmill.store.sqlite.connection import connect
from taskmill.store.sqlite.migrate import MIGRATIONS, create_database, migrate

needs_unnamed_files = pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="the system has no files without a name")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.db")


def contents(path: str) -> list[object]:
    with sqlite3.connect(path) as raw:
        schema = raw.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name").fetchall()
        tables = [name for kind, name, _, _ in schema if kind == "table"]
        rows = [(name, raw.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()) for name in tables]
        checked = raw.execute("PRAGMA integrity_check").fetchall()
    raw.close()
    return [schema, rows, checked]


@needs_unnamed_files
def test_a_new_file_is_complete_before_anything_opens_it(path: str) -> None:
    create_database(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(os.path.dirname(path)) == ["t.db"]
    found = contents(path)
    migrated = path + "-migrated"
    connection = connect(migrated)
    migrate(connection, migrated)
    connection.close()
    assert found == contents(migrated)


@needs_unnamed_files
def test_a_new_file_is_synced_before_it_has_a_name(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, bool]] = []

    def sync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_size, os.path.exists(path)))

    monkeypatch.setattr(os, "fsync", sync)
    create_database(path)
    assert synced == [(os.stat(path).st_size, False)]


@pytest.mark.parametrize("step", ["open", "write", "fsync", "link"])
@needs_unnamed_files
def test_a_process_killed_while_it_creates_a_file_leaves_nothing(path: str, step: str) -> None:
    program = (
        "import os, signal, sys\n"
        "from taskmill.store.sqlite.migrate import _empty_image, create_database\n"
        "_empty_image()\n"
        f"setattr(os, {step!r}, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))\n"
        "create_database(sys.argv[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert os.listdir(os.path.dirname(path)) == []


@pytest.mark.parametrize("step", ["open", "write", "fsync", "link"])
async def test_where_a_file_cannot_be_created_complete_it_is_migrated(
    path: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(os, step)

    def refuse(*arguments: object, **options: object) -> object:
        if step == "open" and not int(str(arguments[1])) & getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY:
            return real(*arguments, **options)
        raise OSError("not here")

    with monkeypatch.context() as patched:
        patched.setattr(os, step, refuse)
        create_database(path)
    assert os.stat(path).st_size == 0
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    async with Scheduler(path) as scheduler:
        assert await scheduler.count() == 0


async def test_an_existing_file_is_not_replaced(path: str) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE invoice (id INTEGER PRIMARY KEY)")
        raw.execute("INSERT INTO invoice VALUES (7)")
    raw.close()
    async with Scheduler(path):
        pass
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT id FROM invoice").fetchall() == [(7,)]
        assert raw.execute("SELECT count(*) FROM taskmill_schema").fetchone() == (len(MIGRATIONS),)
    raw.close()


@needs_unnamed_files
def test_a_file_that_another_process_creates_meanwhile_is_kept(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def link(unnamed: str, name: str, src_dir_fd: int) -> None:
        Path(path).write_bytes(b"first")
        real(unnamed, name, src_dir_fd=src_dir_fd)

    monkeypatch.setattr(os, "link", link)
    create_database(path)
    assert Path(path).read_bytes() == b"first"


async def test_the_log_of_a_deleted_database_is_not_applied_to_a_new_one(path: str) -> None:
    connection = connect(path)
    migrate(connection, path)
    connection.execute("CREATE TABLE left_over (id INTEGER PRIMARY KEY)")
    log = Path(path + "-wal").read_bytes()
    connection.close()
    os.unlink(path)
    Path(path + "-wal").write_bytes(log)
    async with Scheduler(path):
        pass
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT name FROM sqlite_schema WHERE name = 'left_over'").fetchall() == []
    raw.close()


def test_without_an_image_the_file_is_created_empty(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrating, "_empty_image", lambda: None)
    create_database(path)
    assert os.stat(path).st_size == 0
