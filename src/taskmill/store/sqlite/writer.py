"""Group commit to a file, in two stages.

**Commit.** Requests that arrive together share a transaction. A small transaction is written on the event loop: it
costs tens of microseconds, and a busy loop cannot starve it. A large one is written in the writer's thread, so that the
loop stays free. Every statement handles a whole batch through one JSON value, because each call into SQLite releases
the GIL and may have to wait to get it back.

**Sync.** With ``durability="full"`` a thread then syncs the write-ahead log to the disk, once for all transactions
committed in the meantime (:mod:`taskmill.store.sqlite.disk_sync`). Callers that were promised durability (submit,
cancel, save) get their answer after the sync. The loop does not wait for it: a handler may start once its claim is
committed, because a power cut that loses the claim also kills the handler. Decision 0003 has the measurements.

A loop that is always busy starves the threads. In that case more work is done on the loop
(:class:`taskmill.store.sqlite.disk_sync.Handover`).
"""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from taskmill.core.logs import logger
from taskmill.core.ports import Clock, StoreCounters
from taskmill.errors import StoreBusy, StoreError, StoreLost
from taskmill.store.sql.group_commit import Batch, GroupCommit, RequestCancelled, guarded
from taskmill.store.sqlite.connection import (
    LOG_BYTES_KEPT,
    DatabaseError,
    is_busy,
    is_failed_sync,
    is_lack_of_space,
    translated,
)
from taskmill.store.sqlite.disk_sync import DiskSync, Handover
from taskmill.store.sqlite.log import LogFile, first_difference, is_intact
from taskmill.store.sqlite.session import Session

_chance = random.Random()  # noqa: S311 - jitter. The program may have seeded the module's own generator.

INLINE_ROWS = 48
BUSY_INLINE_ROWS = 512
LARGEST_BATCH = 128
LOCK_PATIENCE = 60.0
ROOM_PATIENCE = 1.0
"""Seconds between two attempts to free space on a full disk, after one has failed."""
MENDING_PAUSES = (0.0, 0.1, 0.5)
"""Seconds to wait before each attempt to rewrite a log whose sync has failed."""


class Writer(GroupCommit):
    """The writer of a database file, or with ``log=None`` of a database in memory."""

    largest_batch = LARGEST_BATCH
    is_always_alone = True

    def __init__(self, session: Session, log: LogFile | None, path: str, *, full: bool, clock: Clock) -> None:
        super().__init__(path, clock)
        self.session = session
        self._connection = session.raw
        self._log = log
        self._handover = Handover()
        self._sync: DiskSync | None = None
        if full and log is not None:
            self._sync = DiskSync(
                log, path, clock, self._handover, mend=self.kick, lose=self._lose, idle=self._check_idle
            )
        self._is_short_of_room = False
        self._no_room_before = 0.0
        """Monotonic time before which no attempt is made to free space on a full disk: the last one has just failed."""
        self.lost: StoreLost | None = None
        """The reason why the store is closed for writing, or None while it works."""

    def begin(self) -> None:
        if self._log is not None:
            super().begin()
        if self._sync is not None:
            self._sync.begin()

    @property
    def is_free(self) -> bool:
        """True if the event loop may use the connection now."""
        return not self._working and self.lost is None

    def measure(self, counters: StoreCounters) -> None:
        super().measure(counters)
        if self._sync is not None:
            self._sync.counters = counters

    def kick(self) -> None:
        """Write the waiting requests: small batches now on the loop, a large one in the thread, the rest after it."""
        self._kicked = False
        sync = self._sync
        if sync is not None and sync.must_mend and not self._working and (sync.is_busy or self._asked):
            self._mend(sync)
        while self._asked and not self._working:
            batch = self._next_batch()
            began = time.perf_counter()
            try:
                here = self._belongs_on_loop(batch)
                results = self._finish_transaction(batch) if here else []
            except Exception as wrong:  # noqa: BLE001 - it is passed to the callers
                self._batch_failed(batch, wrong)
            except BaseException:
                # The transaction may have begun before its first request. Nothing else answers the requests, nor kicks
                # those behind them, and a turn waits for its answer even if it is cancelled.
                self._roll_back()
                self._batch_interrupted(batch)
                self._kick_soon()
                raise
            else:
                if here:
                    self._batch_committed(batch, results, time.perf_counter() - began)
                else:
                    self._write_in_thread(batch)
        self._check_idle()

    def _belongs_on_loop(self, batch: Batch) -> bool:
        """True if the batch is to be written on the loop. Its transaction has begun, unless the write lock is taken.

        A thread that began it would have to wait for the GIL before its first statement.
        """
        if batch.rows == 0 or self._log is None:
            return True
        return self._begin_now() and not (batch.patience or self.writes_in_thread(batch.rows))

    def writes_in_thread(self, rows: int) -> bool:
        most = BUSY_INLINE_ROWS if self._handover.loop_is_busy else INLINE_ROWS
        return self._log is not None and rows > most

    def _transaction(self, batch: Batch) -> list[Any]:
        if not self._connection.in_transaction:
            self._begin_patiently()
        return self._finish_transaction(batch)

    def _translated(self, wrong: Exception) -> Exception:
        return translated(wrong, self._name) if isinstance(wrong, DatabaseError) else wrong

    def _batch_failed(self, batch: Batch, wrong: Exception) -> None:
        """Try the batch once more if the disk is full or a sync has failed; otherwise report the error."""
        lacks_space = is_lack_of_space(wrong) and time.monotonic() >= self._no_room_before
        if self._log is None or not (lacks_space or is_failed_sync(wrong)):
            super()._batch_failed(batch, wrong)
        elif batch.asked[0].again:
            self._no_room_before = time.monotonic() + ROOM_PATIENCE
            super()._batch_failed(batch, wrong)
        else:
            # The kernel reports a failed sync once per descriptor, so SQLite's next try would succeed. It reports the
            # failure to the descriptor of LogFile too, and that leads to a rewrite of the log.
            self._asked[:0] = [asked._replace(again=True) for asked in batch.asked]
            if lacks_space:
                self._working = True
                self._thread.start(self._make_room, self._checkpointed)

    def _make_room(self) -> None:
        """Checkpoint the log, so that it starts over in the space it already has and releases the rest."""
        self._connection.execute("PRAGMA journal_size_limit = 0")
        self._is_short_of_room = True
        self._checkpoint()

    def _batch_committed(self, batch: Batch, results: list[Any], took: float) -> None:
        if batch.rows:
            if self._sync is not None:
                self._sync.has_unsynced = True
            else:
                try:
                    self.check_files()
                except StoreLost as gone:
                    super()._batch_failed(batch, gone)
                    return
        if self._is_short_of_room:
            self._is_short_of_room = False
            self._connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES_KEPT}")
        super()._batch_committed(batch, results, took)
        if self._log is not None and self._log.wants_checkpoint():
            if self._handover.loop_is_busy and not self._log.in_doubt:
                self._checkpoint()
            else:
                self._working = True
                self._thread.start(self._checkpoint, self._checkpointed)

    def _checkpointed(self, _result: Any, _wrong: BaseException | None) -> None:
        self._working = False
        self.kick()

    def when_durable(self, callback: Callable[[], None], failed: Callable[[Exception], None] | None) -> None:
        if self.lost is not None:
            if failed is not None:
                failed(self.lost)
        elif self._sync is None:
            callback()
        else:
            self._sync.when_durable(callback, failed)

    @property
    def must_sync(self) -> bool:
        """True if commits have to be synced to the disk."""
        return self._sync is not None

    def committed_elsewhere(self) -> None:
        """Record that another process has committed something that it may not have synced yet."""
        if self._sync is not None:
            self._sync.has_unsynced = True

    def sync_soon(self) -> None:
        if self._sync is not None:
            self._sync.sync_soon()

    # When a sync fails

    def _mend(self, sync: DiskSync) -> None:
        """Rewrite the log after a failed sync; only then does a successful sync prove that it is on the disk."""
        self._working = True
        sync.cover_commits()
        self._thread.start(partial(self._write_again, sync.log), partial(self._mended, sync))

    def _mended(self, sync: DiskSync, _result: Any, refused: BaseException | None) -> None:
        self._working = False
        if refused is None:
            sync.succeeded()
        else:
            self._not_mended(sync, refused)
        self.kick()

    def _not_mended(self, sync: DiskSync, refused: BaseException) -> None:
        why = f"a sync to the disk failed ({refused})"
        uncertain = StoreError(
            f"{self._name}: {why}; this request may or may not be stored. Check that before you repeat it"
        )
        if is_lack_of_space(refused) or isinstance(refused, StoreBusy):
            sync.refused(uncertain, for_good=False)
            self._refuse(StoreError(f"{self._name}: {why}; nothing was stored. Free some space and try again"))
        elif isinstance(refused, StoreLost):
            self._lose(refused)
        else:
            sync.refused(uncertain, for_good=True)
            self._lose(
                StoreLost(f"{self._name} is closed: {why}; nothing was stored. Check the disk, then open it again")
            )

    def _lose(self, why: StoreLost) -> None:
        """Close the store for good and fail every waiting request with ``why``."""
        if self.lost is None:
            self.lost = self._closed = why
            logger.critical("%s", why)
        if self._sync is not None:
            self._sync.refused(self.lost, for_good=True)
        self._refuse(self.lost)

    def check_files(self) -> None:
        """Close the store and raise ``StoreLost`` if its files were deleted, moved or replaced."""
        if self._log is not None:
            try:
                self._log.check_files()
            except StoreLost as gone:
                self._lose(gone)
                raise

    def _refuse(self, wrong: StoreError) -> None:
        asked, self._asked = self._asked, []
        for each in asked:
            guarded(each.failed, wrong)

    def _write_again(self, log: LogFile) -> None:
        """Rewrite a log that is in doubt and sync it; runs in the thread."""
        refused: Exception = StoreError("it was not tried")
        for pause in MENDING_PAUSES:
            time.sleep(pause)
            try:
                self._begin_patiently()
                failed = log.has_failed
                try:
                    before = log.write_again()
                    if failed:
                        self._commit_nothing()
                finally:
                    self._roll_back()
                log.sync()
            except (OSError, DatabaseError) as wrong:
                refused = wrong
                continue
            if failed:
                if not is_intact(after := log.content(), first_difference(before, after)):
                    raise OSError(errno.EIO, "a part of the log is lost")
                log.begin_anew()
            log.trust()
            return
        raise refused

    def _commit_nothing(self) -> None:
        """Commit one unchanged page, to check that the log still has every committed frame.

        SQLite continues the checksum chain of the log from its memory. So the new frame matches the frames before it
        only if none of them is missing in the file. Some file systems drop data that they could not write.
        """
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        self._connection.execute(f"PRAGMA user_version = {version}")
        self._connection.execute("COMMIT")

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _finish_transaction(self, batch: Batch) -> list[Any]:
        """Run the requests in one transaction, or without one if all of them only read."""
        try:
            if batch.rows and not self._connection.in_transaction:
                self._connection.execute("BEGIN IMMEDIATE")
            results = [asked.request(self.session) for asked in batch.asked]
            if batch.rows:
                self._commit()
        except BaseException:
            self.session.forget_combined()
            self._roll_back()
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
        """Begin a transaction, waiting in the thread while another process holds the write lock.

        SQLite does not queue waiters, so the pauses between attempts are random.
        """
        give_up_at = time.monotonic() + LOCK_PATIENCE
        longest = 0.001
        while not self._begin_now():
            if self._cancelled is not None:
                raise RequestCancelled
            if time.monotonic() > give_up_at:
                raise StoreBusy(
                    f"{self._name}: another process has held the write lock for {LOCK_PATIENCE:.0f} s; "
                    "end its transaction, or try again"
                )
            time.sleep(_chance.uniform(0, longest))
            longest = min(longest * 2, 0.02)

    def _checkpoint(self) -> None:
        """Checkpoint the log while holding the write lock, so that no commit can race with it."""
        log = self._log
        if log is None:
            return
        try:
            if log.in_doubt:
                # A power cut during a checkpoint of a log that is not wholly on the disk would mix old and new pages.
                self._write_again(log)
            if not self._begin_now():
                return
            try:
                log.checkpoint()
            finally:
                self._roll_back()
        except (DatabaseError, OSError, StoreError) as wrong:
            if isinstance(wrong, DatabaseError) and not is_busy(wrong) and not is_lack_of_space(wrong):
                # SQLite syncs the log before it copies pages, and does not say which of the two has failed.
                log.doubt()
            # Nothing is lost: committed data stays in the log, which only grows.
            logger.warning("the write-ahead log could not be checkpointed yet: %s", translated(wrong, self._name))

    async def close(self) -> None:
        if self._sync is not None:
            self._sync.hurry()
        await super().close()
        if self._sync is not None:
            await self._sync.close()
        if self._log is not None:
            self._log.close()

    def _is_busy(self) -> bool:
        return super()._is_busy() or (self._sync is not None and self._sync.is_busy)
