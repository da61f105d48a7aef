"""A connection to PostgreSQL as the shared half of the store wants it.

Many sessions write at once. What concerns nobody else (storing plain tasks, claiming, ending what nobody waits for) is
safe row by row, and shares the right to write. Everything else wants to be alone, as the only writer of an SQLite file
is: then what it has read stays true until it commits (docs/decisions/0020).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from taskmill.store.postgres.connection import PatientConnection, RawConnection, adapt
from taskmill.store.sql.connection import Cursor
from taskmill.store.sql.statements import load

STATEMENTS = load(Path(__file__).with_name("queries"))


class NotAlone(Exception):
    """A transaction that shares the right to write found that it must be alone."""


class _Nothing:
    """The answer of a statement that has nothing to do."""

    rowcount = 0

    def fetchone(self) -> None:
        return None

    def fetchall(self) -> list[Any]:
        return []


_NOTHING = _Nothing()


class Statements(ABC):
    """Runs statements by name. ``is_alone`` is set by whoever begins the transaction."""

    is_alone = False
    settings = ""
    """What each transaction must begin with, if it cannot be told to the session."""
    _is_in_snapshot = False

    @abstractmethod
    def _run(self, text: str, parameters: Sequence[Any] | None) -> Cursor: ...

    @abstractmethod
    def script(self, text: str) -> Any:
        """Run several statements without parameters in one message; answers with the first value of the last."""
        ...

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Cursor:
        text = STATEMENTS.get(statement)
        if text is None:
            text = _numbered(statement)
        elif not text:
            return _NOTHING
        return self._run(text, parameters or None)

    def text(self, name: str, /) -> str:
        return STATEMENTS[name]

    def insert(self, statement: str, rows: str, count: int, first_id: int | None = None, /) -> int:
        answer = self._run(STATEMENTS[statement], (rows, count, first_id)).fetchone()
        assert answer is not None  # noqa: S101 - the statement answers with one row
        first: int = answer[0]
        return first

    def pass_over_lost_ids(self) -> None:
        # A rollback does not take back the ids that a server has given out.
        return

    def execute_if_all(self, statement: str, parameters: Sequence[Any], count: int, /) -> bool:
        if not self.is_alone:
            # Whoever shares begins anew if it fails, and then is alone.
            if self.execute(statement, parameters).rowcount != count:
                raise NotAlone
            return True
        self.script("SAVEPOINT all_or_none")
        concerned = self.execute(statement, parameters).rowcount
        if concerned != count:
            self.script("ROLLBACK TO SAVEPOINT all_or_none")
        self.script("RELEASE SAVEPOINT all_or_none")
        return concerned == count

    def be_alone(self) -> None:
        if not self.is_alone:
            raise NotAlone

    @contextmanager
    def snapshot(self) -> Generator[None, None, None]:
        if self._is_in_snapshot:
            yield
            return
        self.script(f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;{self.settings}")
        self._is_in_snapshot = True
        try:
            yield
        finally:
            self._is_in_snapshot = False
            self.script("COMMIT")


class Session(Statements):
    """On a connection of this thread."""

    def __init__(self, raw: RawConnection) -> None:
        self.raw = raw
        self._cursor = psycopg.RawCursor(raw, row_factory=tuple_row)
        adapt(self._cursor.adapters)
        if isinstance(raw, PatientConnection):
            self.settings = raw.settings

    @contextmanager
    def reading(self) -> Generator[None, None, None]:
        """Statements inside have the settings of this session; if it is nobody's, they share a transaction."""
        with self.snapshot() if self.settings else nullcontext():
            yield

    def _run(self, text: str, parameters: Sequence[Any] | None) -> Cursor:
        return self._cursor.execute(text.encode(), parameters, prepare=True)

    def script(self, text: str) -> Any:
        self._cursor.execute(text.encode(), prepare=False)
        while self._cursor.nextset():
            continue
        row = self._cursor.fetchone() if self._cursor.description is not None else None
        return None if row is None else row[0]

    def give_up(self) -> None:
        """The server is silent: wait no longer for its answer. May be called by any thread."""
        if isinstance(self.raw, PatientConnection):
            self.raw.give_up()


def _numbered(text: str) -> str:
    """Fragments are put together with ``?``; PostgreSQL numbers its parameters."""
    parts = text.split("?")
    return parts[0] + "".join(f"${number}{part}" for number, part in enumerate(parts[1:], 1))
