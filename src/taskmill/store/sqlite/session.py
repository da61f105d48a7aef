"""A SQLite connection with the interface that the shared SQL code expects (:mod:`taskmill.store.sql.connection`).

SQLite has one write lock, so a transaction that writes is always exclusive.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from taskmill.store.sql.connection import Cursor
from taskmill.store.sql.statements import load
from taskmill.store.sqlite.connection import Connection
from taskmill.store.sqlite.lost_ids import LostIds, raise_sequence

STATEMENTS = load("sqlite")


class Session:
    """A connection that runs statements by name; ``raw`` is the underlying ``sqlite3`` connection."""

    def __init__(self, raw: Connection, lost_ids: LostIds | None = None) -> None:
        self.raw = raw
        self._lost_ids = lost_ids
        self._run = raw.execute

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Cursor:
        return self._run(STATEMENTS.get(statement, statement), parameters)

    def text(self, name: str, /) -> str:
        return STATEMENTS[name]

    def insert(self, statement: str, rows: str, count: int, _first_id: int | None = None, /) -> int:
        # Ids are consecutive and this transaction holds the write lock, so the planned first id is the next one anyway.
        return (self._run(STATEMENTS[statement], (rows,)).lastrowid or 0) - count + 1

    def pass_over_lost_ids(self) -> None:
        if self._lost_ids is not None and (highest := self._lost_ids.highest()):
            raise_sequence(self.raw, "taskmill_task", highest)

    def execute_if_all(self, statement: str, parameters: Sequence[Any], count: int, /) -> bool:
        self._run("SAVEPOINT all_or_none")
        concerned = self._run(STATEMENTS[statement], parameters).rowcount
        if concerned != count:
            self._run("ROLLBACK TO all_or_none")
        self._run("RELEASE all_or_none")
        return concerned == count

    def be_alone(self) -> None:
        return

    @contextmanager
    def snapshot(self) -> Generator[None, None, None]:
        self._run("BEGIN")
        try:
            yield
        finally:
            self._run("COMMIT")
