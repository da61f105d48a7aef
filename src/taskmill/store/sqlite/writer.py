"""Group commit to a file, in two stages.

**Commit.** Requests that arrive together share a transaction. A small one is written on the event loop, which costs
tens of microseconds and cannot be starved by it; a large one in the writer's thread, so that the loop stays free. Every
statement handles a whole batch through one JSON value, because each call into SQLite gives up the GIL and may wait to
get it back.

**Sync.** With ``durability="full"`` whatever was committed is then forced to the disk in a thread, once for everything
that was committed meanwhile. Whoever was promised durability (a submit, a cancel, a save) is answered after that. The
loop goes on at once: starting a handler needs its claim to be committed, not to be on the disk, because a power cut
that loses the claim also ends the handler. Decision 0003 has the measurements.

A loop that is always busy would starve the threads; then more is done on the loop
(:mod:`taskmill.store.sqlite.handover`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from taskmill.errors import StoreBusy, StoreError
from taskmill.ports import Clock
from taskmill.store.sql.group_commit import Asked, GroupCommit, Request, guarded
from taskmill.store.sql.thread import StoreThread
from taskmill.store.sqlite.connection import DatabaseError, is_busy, translated
from taskmill.store.sqlite.handover import Handover
from taskmill.store.sqlite.log_file import LogFile
from taskmill.store.sqlite.session import Session

T = TypeVar("T")
logger = logging.getLogger("taskmill")

INLINE_ROWS = 48
BUSY_INLINE_ROWS = 512
LARGEST_BATCH = 128
LOCK_PATIENCE = 60.0
SYNC_AT_LATEST = 0.05
"""Seconds that endings nobody waits for may wait for the disk."""


class Writer(GroupCommit):
    """Writes to a file, or with ``log=None`` to memory."""

    largest_batch = LARGEST_BATCH

    def __init__(self, session: Session, log: LogFile | None, path: str, *, full: bool, clock: Clock) -> None:
        super().__init__(path, clock)
        self._session = session
        self._connection = session.raw
        self._log = log
        self.must_sync = full and log is not None
        self._sync_thread = StoreThread("taskmill-sync", clock)
        self._handover = Handover()
        self._undurable: list[tuple[Callable[[], None], Callable[[Exception], None]]] = []
        self._in_sync: list[tuple[Callable[[], None], Callable[[Exception], None]]] = []
        self._syncing = False
        self._soon: asyncio.TimerHandle | None = None
        self._unsynced = False
        """Whether something was committed that no sync has begun to force to the disk."""

    def post(
        self,
        request: Request[T],
        rows: int,
        committed: Callable[[T], None],
        failed: Callable[[Exception], None],
        *,
        alone: bool = False,  # noqa: ARG002 - whoever writes to a file is alone
    ) -> None:
        super().post(request, rows, committed, failed)

    def kick(self) -> None:
        """Write what waits: small batches here and now, a large one in the thread, with the rest after it."""
        self._kicked = False
        while self._asked and not self._working:
            batch = self._next_batch()
            began = time.perf_counter()
            try:
                here = self._belongs_on_loop(batch)
                results = self._finish_transaction(batch) if here else []
            except Exception as wrong:  # noqa: BLE001 - it is handed to whoever asked
                self._batch_failed(batch, wrong)
            else:
                if here:
                    self._batch_committed(batch, results, time.perf_counter() - began)
                else:
                    self._write_in_thread(batch)
        self._check_idle()

    def _belongs_on_loop(self, batch: Sequence[Asked]) -> bool:
        """Whether to write it here; if so, and if it needs one, the transaction has begun."""
        rows = sum(asked.rows for asked in batch)
        if rows == 0 or self._log is None:
            return True
        return rows <= (BUSY_INLINE_ROWS if self._handover.loop_is_busy else INLINE_ROWS) and self._begin_now()

    def _transaction(self, batch: Sequence[Asked]) -> list[Any]:
        self._begin_patiently()
        return self._finish_transaction(batch)

    def _translated(self, wrong: Exception) -> Exception:
        return translated(wrong, self._name) if isinstance(wrong, DatabaseError) else wrong

    def _batch_committed(self, batch: list[Asked], results: list[Any], took: float) -> None:
        self._unsynced = self._unsynced or any(asked.rows for asked in batch)
        super()._batch_committed(batch, results, took)
        if self._log is not None and self._log.wants_checkpoint():
            if self._handover.loop_is_busy:
                self._checkpoint()
            else:
                self._working = True
                self._thread.start(self._checkpoint, self._checkpointed)

    def _checkpointed(self, _result: Any, _wrong: BaseException | None) -> None:
        self._working = False
        self.kick()

    def when_durable(self, callback: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        """Call back once everything committed so far would survive a power cut."""
        if not self.must_sync or (not self._unsynced and not self._syncing):
            callback()
        elif not self._unsynced:
            # What is being forced to the disk right now is all there is.
            self._in_sync.append((callback, failed))
        else:
            self._undurable.append((callback, failed))
            if not self._syncing:
                self._syncing = True
                # After the callbacks of this commit, so that all of them share one sync.
                asyncio.get_running_loop().call_soon(self._sync)

    def committed_elsewhere(self) -> None:
        """Note that another process has committed something that it may not have forced to the disk yet."""
        self._unsynced = True

    def sync_soon(self) -> None:
        """Force what was committed to the disk within a moment, once for all of it."""
        if self.must_sync and self._unsynced and self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SYNC_AT_LATEST, self._sync_now)

    def _sync_now(self) -> None:
        self._soon = None
        self.when_durable(_nothing, _nothing)

    def _sync(self) -> None:
        """Force the log to the disk for all who wait: in a thread, or here when the loop would starve the thread."""
        self._in_sync, self._undurable = self._undurable, []
        self._unsynced = False
        began = time.monotonic()
        if self._handover.loop_is_busy:
            wrong: OSError | None = None
            try:
                self._sync_log()
            except OSError as refused:
                wrong = refused
            self._handover.loop_took(took := time.monotonic() - began)
            self._synced(wrong, took)
        else:

            def done(_result: Any, wrong: BaseException | None) -> None:
                self._handover.thread_took(took := time.monotonic() - began)
                self._synced(wrong, took)

            self._sync_thread.start(self._sync_log, done)

    def _synced(self, refused: BaseException | None, took: float) -> None:
        waiting, self._in_sync = self._in_sync, []
        self._syncing = False
        if self.meter is not None:
            self.meter.synced(took)
        if refused is not None:
            logger.critical("%s: the disk refuses to keep what was committed: %s", self._name, refused)
            self._unsynced = True
            wrong = StoreError(f"{self._name}: the disk refuses to keep what was committed: {refused}")
            for _, failed in waiting:
                guarded(failed, wrong)
        else:
            for callback, _ in waiting:
                guarded(callback)
        if self._undurable and not self._syncing:
            self._syncing = True
            asyncio.get_running_loop().call_soon(self._sync)
        self._check_idle()

    def _sync_log(self) -> None:
        if self._log is not None:
            self._log.sync()

    def _finish_transaction(self, batch: Sequence[Asked]) -> list[Any]:
        """Run the requests in one transaction; requests that only read need none."""
        if not any(asked.rows for asked in batch):
            return [asked.request(self._session) for asked in batch]
        try:
            if not self._connection.in_transaction:
                self._connection.execute("BEGIN IMMEDIATE")
            results = [asked.request(self._session) for asked in batch]
            self._commit()
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return results

    def _commit(self) -> None:
        self._connection.execute("COMMIT")

    def _begin_now(self) -> bool:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except DatabaseError as wrong:
            if is_busy(wrong):
                return False
            raise
        return True

    def _begin_patiently(self) -> None:
        """Wait for another process's write lock, in the thread; SQLite has no queue, so waits are random."""
        give_up_at = time.monotonic() + LOCK_PATIENCE
        longest = 0.001
        while not self._begin_now():
            if time.monotonic() > give_up_at:
                raise StoreBusy(f"{self._name}: another process holds the write lock for {LOCK_PATIENCE:.0f} s")
            time.sleep(random.uniform(0, longest))  # noqa: S311 - spreading waits, not secrets
            longest = min(longest * 2, 0.02)

    def _checkpoint(self) -> None:
        """Copy the log into the database while holding the write lock, so that no commit can race with it."""
        try:
            if self._log is None or not self._begin_now():
                return
            try:
                self._log.checkpoint()
            finally:
                self._connection.execute("ROLLBACK")
        except DatabaseError as wrong:
            # Whatever was committed is in the log and stays there; only its growth is a pity.
            logger.warning("the log could not be copied back yet: %s", translated(wrong, self._name))

    async def close(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._sync_now()
        await super().close()
        await self._sync_thread.close()
        if self._log is not None:
            self._log.close()

    def _is_busy(self) -> bool:
        return super()._is_busy() or self._syncing


def _nothing(*_ignored: object) -> None:
    """Nobody waits."""
