"""Group commit to a server: requests that arrive during a transaction share the next one.

A batch runs in the writer's thread, because the server may be far away and its commit waits for a disk. It takes the
write lock first, shared or exclusive. A shared transaction that turns out to need the exclusive lock is rolled back and
started again.

**When the server goes away.** A transaction that was interrupted before its commit has done nothing, and is repeated. A
transaction that was interrupted during its commit may or may not have been stored. Each transaction writes a mark, so
the writer looks for it once the server is back: nothing is lost and nothing is done twice. The transaction number only
shows whether the transaction is over, because a server that has crashed assigns the numbers of unfinished transactions
again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import psycopg

from taskmill.core.ports import Clock
from taskmill.errors import StoreBusy, StoreError
from taskmill.model.commit import NO_CHANGES, Changes
from taskmill.model.turn import TurnResult
from taskmill.store.postgres.connection import RawConnection, is_lost, may_try_again, translated
from taskmill.store.postgres.load_upkeep import LoadUpkeep
from taskmill.store.postgres.session import NotAlone, Session
from taskmill.store.sql.group_commit import Batch, GroupCommit

LARGEST_BATCH = 2000
"""The largest number of rows in a transaction; further requests wait for the next, so that no caller waits long."""
SERVER_PATIENCE = 30.0
"""Seconds for which a batch waits for a lost server before its callers get an error."""


class Writer(GroupCommit):
    """The writer of a PostgreSQL store; ``connect`` opens its connection, and opens it again after a loss."""

    largest_batch = LARGEST_BATCH

    def __init__(self, connect: Callable[[], RawConnection], name: str, clock: Clock) -> None:
        super().__init__(name, clock)
        self._connect = connect
        self.session: Session | None = None
        """The session in use; the heartbeat thread checks that the server answers it."""
        self._word = os.urandom(8).hex()
        """The name of this writer in ``taskmill_commit``."""
        self._mark = 0
        """The mark of the last transaction that was started."""
        self.node: int | None = None
        """The node for which tasks are claimed."""
        self.changes = 0
        """How often this writer has increased the counter of changes, or is about to."""
        self._load_upkeep = LoadUpkeep()
        self.restarts = 0
        """The number of transactions that were rolled back and started again with the exclusive lock."""
        self.is_lazy = False
        """True if commits do not wait for the disk."""
        self.told: Callable[[Changes], None] = lambda _changes: None
        """Called in the thread after each commit, with what other nodes have to know of it."""

    def writes_in_thread(self, rows: int) -> bool:  # noqa: ARG002 - every batch is
        return True

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

    def _transaction(self, batch: Batch) -> list[Any]:
        """Run the requests in one transaction, and repeat it while the server cannot be reached."""
        alone = batch.asked[0].alone
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
                    # Connecting works, but statements fail or get no answer.
                    raise StoreBusy(f"{self._name}: the server went away and nothing was stored: {wrong}") from wrong

    def _try(self, batch: Batch, alone: bool, commit: _Commit) -> list[Any]:
        session = self.session
        if session is None or session.raw.closed:
            session = self.session = Session(self._connect())
        mode = "EXCLUSIVE" if alone else "SHARE"
        node = "" if self.node is None else str(self.node)
        try:
            commit.number = session.script(
                # Set explicitly, because the database may have another default: each statement must see the latest
                # commits.
                f"BEGIN ISOLATION LEVEL READ COMMITTED; {session.settings} SET LOCAL taskmill.node = '{node}';"
                f" LOCK TABLE taskmill_writing IN {mode} MODE;"
                + (" SELECT pg_current_xact_id()::text" if batch.rows else "")
            )
            session.is_alone, session.changes = alone, NO_CHANGES
            commit.results = [asked.request(session) for asked in batch.asked]
        except NotAlone:
            self._rollback(session)
            raise
        if not batch.rows:
            session.script("COMMIT")
            return commit.results
        self._load_upkeep.merge_if_long(session)
        # A crash of the server does not stop handlers. If the server lost a turn, a task could run twice at once, or
        # stay "running" forever. So turns wait for the disk at every durability setting.
        turns = any(isinstance(result, TurnResult) for result in commit.results)
        sync = "SET LOCAL synchronous_commit = on; " if turns and self.is_lazy else ""
        commit.was_sent = True
        self.changes += 1
        session.script(f"{sync}{commit.leave_mark()}; SELECT nextval('taskmill_change'); COMMIT")
        self.told(session.changes)
        return commit.results

    def _rollback(self, session: Session) -> None:
        if not session.raw.closed:
            session.script("ROLLBACK")

    def _forget_session(self) -> None:
        if self.session is not None:
            self.session.raw.close()
            self.session = None

    def _was_done(self, commit: _Commit, give_up_at: float, wrong: Exception) -> bool:
        """Reconnect, and return True if the interrupted transaction was committed."""
        pause = 0.01
        self._forget_session()
        while True:
            try:
                self.session = Session(self._connect())
                return commit.was_done(self.session, give_up_at)
            except (StoreError, psycopg.Error) as again:
                self._forget_session()
                if time.monotonic() > give_up_at:
                    known = "the request may or may not be stored" if commit.was_sent else "nothing was stored"
                    raise StoreBusy(f"{self._name}: the server went away and {known}: {wrong}") from again
            time.sleep(pause)
            pause = min(pause * 2, 1.0)

    # Durability

    def when_durable(
        self,
        callback: Callable[[], None],
        failed: Callable[[Exception], None] | None,  # noqa: ARG002 - nothing is left that could fail
    ) -> None:
        """Call back at once: a commit is already as durable as configured."""
        callback()

    def sync_soon(self) -> None:
        return

    async def close(self) -> None:
        await super().close()
        self._forget_session()


class _Commit:
    """One transaction: its number, its mark, whether its commit was sent, and the results of its requests."""

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
        """True if a commit that was interrupted has taken place, according to the mark on the server."""
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
            # The server calls this number "in the future": it crashed, and has not assigned the number again.
            return False
        return bool(row[0] == "in progress")
