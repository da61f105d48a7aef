"""The list of examined columns is complete: a column that a migration adds must be in it."""

from __future__ import annotations

from pathlib import Path

from taskmill import Scheduler
from taskmill.store.sql.damage_columns import EXAMINED
from tests.acceptance.sqlite_library import sqlite3

KEYS = {"id", "name", "type"}
"""Columns by which rows are found; messages about other columns name them."""
UNREAD = {"taskmill_history_tag"}
"""Nothing decodes this table: it only serves to find tasks."""


async def test_every_column_of_every_table_is_examined(tmp_path: Path) -> None:
    async with Scheduler(tmp_path / "tasks.db"):
        pass
    connection = sqlite3.connect(tmp_path / "tasks.db")
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'taskmill%'")
    tables = {name for (name,) in found} - UNREAD - {"taskmill_schema"}
    assert set(EXAMINED) == tables
    for table in tables:
        columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        assert columns - KEYS - {"task_id"} == {column.name for column in EXAMINED[table]} - KEYS - {"task_id"}, table
    connection.close()
