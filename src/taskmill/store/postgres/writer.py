"""Group commit to a server: requests that arrive while a transaction is under way share the next one.

A batch runs in the writer's thread, because the server may be far away and its commit waits for a disk. It begins with
the right to write, shared or alone; one that turns out to need to be alone is rolled back and begins anew.

**When the server goes away.** A transaction that was cut off before its commit has done nothing, and is repeated. If it
was cut off while committing, a mark that it leaves tells what became of it once the server is back: nothing is lost and
nothing is done twice. Its number tells whether it is over, but no more: after a crash of the server numbers of what was
under way are given to others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from taskmill.errors import StoreBusy, StoreError
from taskmill.model.turn import TurnResult
from taskmill.ports import Clock
from taskmill.store.postgres.connection import RawConnection, is_lost, may_try_again, translated
from taskmill.store.postgres.session import NotAlone, Session
from taskmill.store.sql.group_commit import Asked, GroupCommit

LARGEST_BATCH = 2000
"""Rows of one transaction; more wait for the next, so that nobody waits long."""
SERVER_PATIENCE = 30.0
"""Seconds for which a batch waits for a server that went away, before whoever asked is told."""


class Writer(GroupCommit):
    """Writes to a server; ``connect`` opens the connection, at first and again."""

    largest_batch = LARGEST_BATCH

    def __init__(self, connect: Callable[[], RawConnection], name: str, clock: Clock) -> None:
        super().__init__(name, clock)
        self._connect = connect
        self.session: Session | None = None
        """The one at work, for those who mind that it is answered."""
        self._word = os.urandom(8).hex()
        self._mark = 0
        """Of the last transaction that was begun; it leaves it under our word."""
        self.node: int | None = None
        """The node in whose name tasks are claimed."""
        self.changes = 0
        """How often this writer has moved the counter of changes."""
        self.restarts = 0
        """How many transactions were rolled back to begin anew with the exclusive lock."""
        self.is_lazy = False
        """Whether commits do not wait for the disk."""
        self.told: Callable[[], None] = lambda: None
        """Called in the thread after each commit."""

    def kick(self) -> None:
        self._kicked = False
        if self._asked and not self._working:
            self._write_in_thread(self._next_batch())
        self._check_idle()

    def _translated(self, wrong: Exception) -> Exception:
        return translated(wrong, self._name)

    # In the thread

    def open(self) -> None:
        """Connect; called in the thread that opens the store."""
        self.session = Session(self._connect())

    def _transaction(self, batch: Sequence[Asked]) -> list[Any]:
        """Run the requests in one transaction, again and again while the server is away."""
        alone = batch[0].alone
        give_up_at: float | None = None
        while True:
            self._mark += 1
            commit = _Commit(self._word, self._mark)
            try:
                return self._try(batch, alone, commit)
            except NotAlone:
                alone = True
                self.restarts += 1
            except Exception as wrong:
                give_up_at = give_up_at or time.monotonic() + SERVER_PATIENCE
                session = self.session
                if session is not None and not is_lost(wrong, session.raw):
                    self._rollback(session)
                    if not may_try_again(wrong) or time.monotonic() > give_up_at:
                        raise
                    continue
                if self._was_done(commit, give_up_at, wrong):
                    return commit.results
                if time.monotonic() > give_up_at:
                    # Connections can be had, but what is said on them goes astray.
                    raise StoreBusy(f"{self._name}: the server went away and nothing was stored: {wrong}") from wrong

    def _try(self, batch: Sequence[Asked], alone: bool, commit: _Commit) -> list[Any]:
        session = self.session
        if session is None or session.raw.closed:
            session = self.session = Session(self._connect())
        mode = "EXCLUSIVE" if alone else "SHARE"
        node = "" if self.node is None else str(self.node)
        writes = any(asked.rows for asked in batch)
        try:
            commit.number = session.script(
                # Whatever is usual in this database: each statement sees what is true now.
                f"BEGIN ISOLATION LEVEL READ COMMITTED; {session.settings} SET LOCAL taskmill.node = '{node}';"
                f" LOCK TABLE taskmill_writing IN {mode} MODE;"
                + (" SELECT pg_current_xact_id()::text" if writes else "")
            )
            session.is_alone = alone
            commit.results = [asked.request(session) for asked in batch]
        except NotAlone:
            self._rollback(session)
            raise
        if not writes:
            session.script("COMMIT")
            return commit.results
        # A crash of the server ends no handler: by what it would forget of a turn, a task would run beside itself, or
        # be at work for ever. So turns wait for the disk whatever was asked for.
        turns = any(isinstance(result, TurnResult) for result in commit.results)
        sync = "SET LOCAL synchronous_commit = on; " if turns and self.is_lazy else ""
        commit.was_sent = True
        session.script(f"{sync}{commit.leave_mark()}; SELECT nextval('taskmill_change'); COMMIT")
        self.changes += 1
        self.told()
        return commit.results

    def _rollback(self, session: Session) -> None:
        if not session.raw.closed:
            session.script("ROLLBACK")

    def _forget_session(self) -> None:
        if self.session is not None:
            self.session.raw.close()
            self.session = None

    def _was_done(self, commit: _Commit, give_up_at: float, wrong: Exception) -> bool:
        """Connect again, and find out what became of the transaction that was under way."""
        pause = 0.01
        self._forget_session()
        while True:
            try:
                self.session = Session(self._connect())
                return commit.was_done(self.session, give_up_at)
            except (StoreError, psycopg.Error) as again:
                self._forget_session()
                if time.monotonic() > give_up_at:
                    known = "nobody knows whether it was stored" if commit.was_sent else "nothing was stored"
                    raise StoreBusy(f"{self._name}: the server went away and {known}: {wrong}") from again
            time.sleep(pause)
            pause = min(pause * 2, 1.0)

    # Durability

    def when_durable(
        self,
        callback: Callable[[], None],
        failed: Callable[[Exception], None] | None,  # noqa: ARG002 - nothing is left that could fail
    ) -> None:
        """Whatever is committed is as durable as was asked for."""
        callback()

    def sync_soon(self) -> None:
        return

    async def close(self) -> None:
        await super().close()
        self._forget_session()


class _Commit:
    """What is known of a transaction: its number, whether its commit was sent, and what its requests answered."""

    def __init__(self, writer: str, mark: int) -> None:
        self._writer = writer
        self._mark = mark
        self.number: str | None = None
        self.was_sent = False
        self.results: list[Any] = []

    def leave_mark(self) -> str:
        return (
            f"INSERT INTO taskmill_commit (writer, mark) VALUES ('{self._writer}', {self._mark})"  # noqa: S608 - our own
            " ON CONFLICT (writer) DO UPDATE SET mark = excluded.mark, made_at = excluded.made_at"
        )

    def was_done(self, session: Session, give_up_at: float) -> bool:
        """Whether a commit that was cut off has taken place, as the server knows once it is back."""
        if not self.was_sent:
            return False
        while self._is_under_way(session):
            if time.monotonic() > give_up_at:
                raise StoreError("the server has not ended the transaction yet")
            time.sleep(0.01)
        row = session.execute("last_mark", (self._writer,)).fetchone()
        return row is not None and row[0] == self._mark

    def _is_under_way(self, session: Session) -> bool:
        try:
            row = session.execute("SELECT pg_xact_status(?::text::xid8)", (self.number,)).fetchone()
        except psycopg.errors.InvalidParameterValue:
            # "In the future": the server has crashed, and nobody has got that number since.
            return False
        return bool(row[0] == "in progress")
