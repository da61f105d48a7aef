"""A file that cannot be a store is refused with the reason, and left as it was."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pytest

from taskmill import ConfigError, Scheduler, SchemaTooNew, StoreCorrupt, StoreError
from tests.acceptance.box import NUL, SURROGATE, box, put, unchanged
from tests.acceptance.sqlite_library import sqlite3

pytestmark = pytest.mark.one_engine("files are what is tested")


async def _open_and_close(path: Path) -> None:
    async with Scheduler(path, domains=[box]):
        pass


async def _refuses_to_open(path: Path, error: type[Exception], *says: str) -> None:
    """Check that opening raises exactly this class, and that no task can be submitted."""
    with pytest.raises(error) as caught:
        await _open_and_close(path)
    assert type(caught.value) is error
    for text in (str(path), *says):
        assert text in str(caught.value)
    with pytest.raises(ConfigError, match="box"):
        await put.submit("a")


@pytest.mark.parametrize("content", [b"hello\n", b"name,size\n" * 1000, os.urandom(8192)], ids=len)
async def test_a_file_that_is_not_a_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    await _refuses_to_open(path, StoreCorrupt, "not an SQLite database")
    assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_an_empty_name_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="store must not be empty"):
        Scheduler("")


@pytest.mark.parametrize("name", [NUL, SURROGATE, "x" * 5000])
async def test_a_name_no_file_can_have_is_refused(name: str) -> None:
    with pytest.raises((ConfigError, StoreError)):
        async with Scheduler(name):
            pass


async def test_a_failed_open_leaves_no_thread_behind(path: Path) -> None:
    path.write_bytes(b"hello\n")
    before = set(threading.enumerate())
    with pytest.raises(StoreError):
        await _open_and_close(path)
    assert set(threading.enumerate()) <= before


async def test_a_folder_is_refused(path: Path) -> None:
    path.mkdir()
    await _refuses_to_open(path, StoreError, "folder")


async def test_a_missing_folder_is_named_and_not_created(tmp_path: Path) -> None:
    await _refuses_to_open(tmp_path / "missing" / "tasks.db", StoreError, str(tmp_path / "missing"))
    assert list(tmp_path.iterdir()) == []


async def test_a_damaged_database_is_called_so(path: Path) -> None:
    async with Scheduler(path, domains=[box]):
        for n in range(50):
            await put.submit("a" * 2000, n)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    await _refuses_to_open(path, StoreCorrupt, "damaged")


async def test_a_schema_from_the_future_is_refused_and_left_alone(path: Path) -> None:
    await _open_and_close(path)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO taskmill_schema (version, name) VALUES (999, 'from the future')")
    with unchanged(path):
        await _refuses_to_open(path, SchemaTooNew, "999", "upgrade taskmill")


async def test_a_database_of_the_application_is_shared_not_refused(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 7")
        connection.execute("CREATE TABLE photo (name TEXT)")
        connection.execute("INSERT INTO photo VALUES ('a.jpg')")
    async with Scheduler(path, domains=[box]) as scheduler:
        handle = await put.submit("a")
        await scheduler.run_until_idle(timeout=10)
        assert await handle.result() == 1
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM photo").fetchall() == [("a.jpg",)]
        assert connection.execute("PRAGMA user_version").fetchone() == (7,)
