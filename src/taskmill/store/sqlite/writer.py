"""One writer with group commit.

Requests that arrive while a transaction is under way share the next one: its fsync is paid once for all of them.

Where the work runs was measured (docs/decisions/0003): a small batch is written on the event loop, which costs tens
of microseconds and cannot be starved by it, and only its COMMIT, which waits for the disk, runs in the writer's
thread. A large batch runs in the thread whole, so that the loop stays free. Every statement handles a whole batch
through one JSON value, because each call into SQLite gives up the GIL and may wait to get it back.

A request is a function of the connection. It must be repeatable: if one of a batch fails, the transaction is rolled
back and each runs again alone, so that only the faulty one fails.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from taskmill.errors import StoreBusy, StoreError
from taskmill.ports import Clock
from taskmill.store.sqlite.connection import Connection, DatabaseError, is_busy, translated
from taskmill.store.sqlite.thread import StoreThread

T = TypeVar("T")
Request = Callable[[Connection], T]

INLINE_ROWS = 48
LOCK_PATIENCE = 60.0
CHECKPOINT_BYTES = 8 * 1024 * 1024


class _Asked(NamedTuple):
    request: Request[Any]
    rows: int
    committed: Callable[[Any], None]
    failed: Callable[[Exception], None]


class Writer:
    """Owns the write connection. Lives on one event loop."""

    def __init__(
        self, connection: Connection, checkpointer: Connection | None, path: str, *, full: bool, clock: Clock
    ) -> None:
        self._connection = connection
        self._checkpointer = checkpointer
        self._path = path
        self._in_memory = checkpointer is None
        self._commit_in_thread = full and not self._in_memory
        self._thread = StoreThread("taskmill-writer", clock)
        self._asked: list[_Asked] = []
        self._pump: asyncio.Task[None] | None = None
        self._closed = False
        self._checkpoint_at = CHECKPOINT_BYTES
        self.commits = 0
        self.largest_batch = 0

    def ask(self, request: Request[T], rows: int = 1) -> Awaitable[T]:
        """Run ``request`` in the next transaction; the answer comes after its commit.

        ``rows`` says how much work it is; 0 promises that it only reads, and needs no transaction of its own.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def committed(result: T) -> None:
            if not answer.done():
                answer.set_result(result)

        def failed(wrong: Exception) -> None:
            if not answer.done():
                answer.set_exception(wrong)

        self.post(request, rows, committed, failed)
        return answer

    def post(
        self,
        request: Request[T],
        rows: int,
        committed: Callable[[T], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Like :meth:`ask`, with calls back on the loop in the order of the commit, whoever still waits."""
        if self._closed:
            failed(StoreError(f"{self._path}: the store is closed"))
            return
        self._asked.append(_Asked(request, rows, committed, failed))
        if self._pump is None:
            self._pump = asyncio.get_running_loop().create_task(self._run(), name="taskmill-writer")

    async def _run(self) -> None:
        try:
            while self._asked:
                batch, self._asked = self._asked, []
                await self._write(batch)
        finally:
            self._pump = None

    async def _write(self, batch: list[_Asked]) -> None:
        try:
            results = await self._transaction(batch)
        except Exception as wrong:  # noqa: BLE001 - it is handed to whoever asked
            if len(batch) > 1 and not isinstance(wrong, StoreBusy):
                for asked in batch:
                    await self._write([asked])
            else:
                told = self._told(wrong)
                for asked in batch:
                    asked.failed(told)
            return
        self.commits += 1
        self.largest_batch = max(self.largest_batch, len(batch))
        for asked, result in zip(batch, results, strict=True):
            asked.committed(result)
        await self._maybe_checkpoint()

    async def _transaction(self, batch: Sequence[_Asked]) -> list[Any]:
        rows = sum(asked.rows for asked in batch)
        if rows == 0:
            return [asked.request(self._connection) for asked in batch]
        small = rows <= INLINE_ROWS
        if not (self._in_memory or (small and self._begin_now())):
            return await self._thread.run(lambda: self._whole_transaction(batch))
        if self._in_memory:
            self._connection.execute("BEGIN IMMEDIATE")
        try:
            results = [asked.request(self._connection) for asked in batch]
            if self._commit_in_thread:
                await self._thread.run(self._commit)
            else:
                self._commit()
        except BaseException:
            self._roll_back()
            raise
        return results

    def _whole_transaction(self, batch: Sequence[_Asked]) -> list[Any]:
        self._begin_patiently()
        try:
            results = [asked.request(self._connection) for asked in batch]
            self._commit()
        except BaseException:
            self._roll_back()
            raise
        return results

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
                raise StoreBusy(f"{self._path}: another process holds the write lock for {LOCK_PATIENCE:.0f} s")
            time.sleep(random.uniform(0, longest))  # noqa: S311 - spreading waits, not secrets
            longest = min(longest * 2, 0.02)

    def _commit(self) -> None:
        self._connection.execute("COMMIT")

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _told(self, wrong: Exception) -> Exception:
        return translated(wrong, self._path) if isinstance(wrong, DatabaseError) else wrong

    async def _maybe_checkpoint(self) -> None:
        if self._checkpointer is None:
            return
        try:
            size = os.stat(self._path + "-wal").st_size
        except FileNotFoundError:
            return
        if size >= self._checkpoint_at:
            await self._thread.run(self._checkpoint)
        elif size < CHECKPOINT_BYTES:
            self._checkpoint_at = CHECKPOINT_BYTES

    def _checkpoint(self) -> None:
        """Copy the log into the database while holding the write lock, so that no commit can race with it."""
        if self._checkpointer is None or not self._begin_now():
            return
        try:
            busy, logged, copied = self._checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        finally:
            self._connection.execute("ROLLBACK")
        # A reader may pin the log; then try again only after it has grown further.
        complete = not busy and logged == copied
        self._checkpoint_at = CHECKPOINT_BYTES if complete else self._checkpoint_at + CHECKPOINT_BYTES

    async def close(self) -> None:
        """Finish what was asked, then stop."""
        self._closed = True
        while (pump := self._pump) is not None:
            await asyncio.wait([pump])
        await self._thread.close()
