"""All rows of a file, read from a copy of it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from taskmill.store.sqlite.dispatch_lock import beginnings_in

Row = dict[str, Any]


class Contents:
    """All rows of the file."""

    def __init__(self, file: Path, scratch: Path) -> None:
        self.active: dict[int, Row] = {}
        self.ended: dict[int, Row] = {}
        self.active_tags: list[tuple[int, str, str]] = []
        self.ended_tags: list[tuple[int, str, str]] = []
        self.tally: list[tuple[str, str, str, int, int, int]] = []
        self.load: dict[tuple[str, str, str], int] = {}
        self.sequence = 0
        self.integrity = "ok"
        # A process that is killed early enough has not created the lock file.
        lock = Path(f"{file}-dispatch")
        beginnings = beginnings_in(lock.read_bytes()) if lock.exists() else []
        self.begun = {(id, attempt) for id, attempt, _ in beginnings}
        """The tokens of prefetched tasks that are known to have begun."""
        copy = scratch / "copy.db"
        for suffix in ("", "-wal"):
            Path(f"{copy}{suffix}").unlink(missing_ok=True)
            if Path(f"{file}{suffix}").exists():
                shutil.copyfile(f"{file}{suffix}", f"{copy}{suffix}")
        Path(f"{copy}-shm").unlink(missing_ok=True)
        with closing(sqlite3.connect(copy)) as connection:
            self._read(connection)

    def _read(self, connection: sqlite3.Connection) -> None:
        connection.row_factory = sqlite3.Row
        (self.integrity,) = connection.execute("PRAGMA integrity_check").fetchone()
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if "taskmill_task" not in tables:
            return
        self.active = {row["id"]: dict(row) for row in connection.execute("SELECT * FROM taskmill_task")}
        self.ended = {row["id"]: dict(row) for row in connection.execute("SELECT * FROM taskmill_history")}
        tags = "SELECT task_id, name, value FROM {} ORDER BY 1, 2, 3"
        self.active_tags = [tuple(row) for row in connection.execute(tags.format("taskmill_task_tag"))]
        self.ended_tags = [tuple(row) for row in connection.execute(tags.format("taskmill_history_tag"))]
        self.tally = [tuple(row) for row in connection.execute("SELECT * FROM taskmill_tally ORDER BY 1, 2, 3")]
        self.load = {
            (group, type, status): n
            for group, type, status, n in connection.execute("SELECT * FROM taskmill_load").fetchall()
        }
        for (sequence,) in connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'taskmill_task'"):
            self.sequence = sequence


class FamilyContents(Contents):
    """All rows of the file, with the links between tasks."""

    def __init__(self, file: Path, scratch: Path) -> None:
        self.edges: list[tuple[int, int, int]] = []
        """Triples of a task, its dependency, and True if the task still waits for it."""
        self.series: dict[int, Row] = {}
        super().__init__(file, scratch)

    def _read(self, connection: sqlite3.Connection) -> None:
        super()._read(connection)
        if "taskmill_series" in {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}:
            self.edges = [
                tuple(row) for row in connection.execute("SELECT task_id, on_id, open FROM taskmill_dependency")
            ]
            self.series = {row["id"]: dict(row) for row in connection.execute("SELECT * FROM taskmill_series")}
