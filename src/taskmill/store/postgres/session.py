"""A PostgreSQL connection with the interface that the shared SQL code expects (:mod:`taskmill.store.sql.connection`).

Many sessions write at once. Transactions that are safe row by row (storing plain tasks, claiming, ending tasks that no
other task waits for) take the write lock in shared mode. All others take it exclusively, like the single writer of an
SQLite file, so that what they have read stays true until they commit (docs/decisions/0020).

A session may stop getting answers while the server answers on another connection; :func:`give_up_unheard` detects that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from taskmill.core.logs import logger
from taskmill.model.commit import NO_CHANGES, Commit
from taskmill.store.postgres.connection import PatientConnection, RawConnection, adapt
from taskmill.store.sql.connection import ANSWER, Cursor, Statement
from taskmill.store.sql.statements import load

STATEMENTS = load("postgres", Path(__file__).with_name("cluster.sql"))


class NotAlone(Exception):
    """Raised when a transaction with the shared write lock turns out to need the exclusive one."""


class _Nothing:
    """The result of a statement that is empty in this dialect."""

    rowcount = 0
    description = None

    def fetchone(self) -> None:
        return None

    def fetchall(self) -> list[Any]:
        return []


_NOTHING = _Nothing()


class Statements(ABC):
    """A session that runs statements by name."""

    is_alone = False
    """True if the transaction holds the write lock exclusively; set by the code that starts the transaction."""
    settings = ""
    """SET LOCAL statements for the start of each transaction, if the session cannot keep settings."""
    changes = NO_CHANGES
    """What the requests of the current transaction have noted for other nodes; the writer resets it."""
    rows_changed: int | None = None
    _is_in_snapshot = False
    _spare_id: int | None = None
    """The id of the next task that a rehearsal stores; None outside of rehearsals."""

    @abstractmethod
    def _run(self, text: str, parameters: Sequence[Any] | None) -> Cursor: ...

    @abstractmethod
    def script(self, text: str) -> Any:
        """Run several statements without parameters in one message; return the first value of the last result."""
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
        if self._spare_id is not None:
            first_id, self._spare_id = self._spare_id, self._spare_id + count
        answer = self._run(STATEMENTS[statement], (rows, count, first_id)).fetchone()
        assert answer is not None  # noqa: S101 - the statement answers with one row
        first: int = answer[0]
        return first

    def pass_over_lost_ids(self) -> None:
        # Nothing to do: a rollback does not reset a PostgreSQL sequence.
        return

    def execute_if_all(self, statement: str, parameters: Sequence[Any], count: int, /) -> bool:
        if not self.is_alone:
            # No savepoint needed: on failure the whole transaction starts again with the exclusive lock.
            if self.execute(statement, parameters).rowcount != count:
                raise NotAlone
            return True
        self.script("SAVEPOINT all_or_none")
        concerned = self.execute(statement, parameters).rowcount
        if concerned != count:
            self.script("ROLLBACK TO SAVEPOINT all_or_none")
        self.script("RELEASE SAVEPOINT all_or_none")
        return concerned == count

    def execute_together(self, statements: Sequence[Statement], /) -> str | None:
        # One after the other, because one may need the answer of an earlier one.
        answer = ""
        for name, parameters, rows in statements:
            if answer == "[]" and any(value is ANSWER for value in parameters):
                # Save a round trip: it would be about no task.
                continue
            values = [answer if value is ANSWER else value for value in parameters]
            if rows is not None:
                if not self.execute_if_all(name, values, rows):
                    return None
                continue
            cursor = self.execute(name, values)
            if cursor.description is not None:
                answer = cursor.fetchone()[0]
        return answer

    def be_alone(self) -> None:
        if not self.is_alone:
            raise NotAlone

    def note(self, commit: Commit, /) -> None:
        self.changes = self.changes.joined(commit.changes)

    @contextmanager
    def rehearsal(self) -> Generator[None, None, None]:
        # A rollback does not give ids back to a sequence, so take none from it. This transaction holds the write lock
        # exclusively, so no other one stores tasks under these ids meanwhile.
        self._spare_id = 1 + self._run(STATEMENTS["last_given_id"], None).fetchone()[0]
        try:
            yield
        finally:
            self._spare_id = None

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
    """A session on a synchronous psycopg connection."""

    def __init__(self, raw: RawConnection) -> None:
        self.raw = raw
        self._cursor = psycopg.RawCursor(raw, row_factory=tuple_row)
        adapt(self._cursor.adapters)
        if isinstance(raw, PatientConnection):
            self.settings = raw.settings

    @contextmanager
    def reading(self) -> Generator[None, None, None]:
        """Run statements with this session's settings; behind a pooler that takes a transaction around them."""
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
        """Make the running call fail: the server is known not to answer. Safe from any thread."""
        if isinstance(self.raw, PatientConnection):
            self.raw.give_up()


def _numbered(text: str) -> str:
    """Replace ``?`` by ``$1``, ``$2`` …: statements put together from fragments use ``?``."""
    parts = text.split("?")
    return parts[0] + "".join(f"${number}{part}" for number, part in enumerate(parts[1:], 1))


UNHEARD = 8.0
"""Seconds that a call waits without an answer before the server is asked about its session."""
NOTHING_TO_DO = 2.0
"""Seconds for which the session must have been idle: its answer would have arrived by then."""


def give_up_unheard(asking: Session, others: Iterable[Session]) -> None:
    """Check the sessions that have waited long for an answer, through ``asking``, and give up the broken ones.

    A call may rightly take long, because it waits for a lock or has much to do. So the server is asked for the state
    of the call's session first. If the session is idle, gone, or blocked sending its answer, the connection is broken,
    and the call is given up. The writer finds out on its next connection whether the transaction was committed.

    Called with each heartbeat.
    """
    for other in others:
        raw = other.raw
        if not isinstance(raw, PatientConnection) or raw.unheard_for < UNHEARD:
            continue
        number = None if raw.alias else raw.info.backend_pid
        try:
            is_lost = asking.execute("is_abandoned", (number, raw.alias, NOTHING_TO_DO)).fetchone()[0]
        except psycopg.errors.InsufficientPrivilege:
            # This role may not see other sessions. The call then ends with the server's statement timeout.
            continue
        if is_lost:
            logger.warning("a connection to the server no longer gets answers; another is opened")
            other.give_up()
