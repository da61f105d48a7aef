"""Group commit: requests that arrive together, or during a transaction, share the next transaction.

A request is a function of the connection. It must be repeatable: if one request of a batch fails, the transaction is
rolled back and each runs again in a transaction of its own, so that only the faulty one fails.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from taskmill.core.logs import logger
from taskmill.core.ports import Clock, StoreCounters
from taskmill.errors import StoreBusy, StoreError, TaskmillError
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.damage import UNDECODABLE, corrupt
from taskmill.store.sql.thread import StoreThread

T = TypeVar("T")
Request = Callable[[Connection], T]


class Asked(NamedTuple):
    """A request that waits for its transaction."""

    request: Request[Any]
    rows: int
    """The amount of work; 0 promises that the request only reads."""
    committed: Callable[[Any], None]
    failed: Callable[[Exception], None]
    alone: bool
    """True if the transaction must exclude other writers."""
    by_itself: bool = False
    """True if the request must not share its transaction with other requests."""
    again: bool = False
    """True if this is the second try after a disk error."""


class GroupCommit(ABC):
    """The writer of a store. It owns the connection that writes and a thread for it, and belongs to one event loop."""

    largest_batch: int
    """The largest number of rows in a transaction; further requests wait for the next, so that no caller waits long."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._thread = StoreThread("taskmill-writer", clock)
        self._asked: list[Asked] = []
        self._kicked = False
        self._working = False
        """True while the thread uses the connection."""
        self._idle: asyncio.Future[None] | None = None
        self._closed = False
        self.commits = 0
        self.counters: StoreCounters | None = None

    def measure(self, counters: StoreCounters) -> None:
        """Report commit times and batch sizes to ``counters``."""
        self.counters = counters

    def ask(
        self,
        request: Request[T],
        rows: int = 1,
        *,
        alone: bool = False,
        durable: bool = True,
        at_commit: Callable[[T], None] | None = None,
    ) -> Awaitable[T]:
        """Run ``request`` in the next transaction; return its result once committed or, with ``durable``, durable.

        ``rows`` is the amount of work; 0 promises that the request only reads and needs no transaction of its own.
        ``at_commit`` is called right after the commit, in commit order, even if the caller was cancelled.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def succeed(result: T) -> None:
            if not answer.done():
                answer.set_result(result)

        def failed(wrong: Exception) -> None:
            if not answer.done():
                answer.set_exception(wrong)

        def committed(result: T) -> None:
            if at_commit is not None:
                at_commit(result)
            if durable and rows:
                self.when_durable(lambda: succeed(result), failed)
            else:
                succeed(result)

        self.post(request, rows, committed, failed, alone=alone)
        return answer

    def post(
        self,
        request: Request[T],
        rows: int,
        committed: Callable[[T], None],
        failed: Callable[[Exception], None],
        *,
        alone: bool = False,
    ) -> None:
        """Like :meth:`ask`, but call ``committed`` or ``failed`` on the loop, in commit order."""
        if self._closed:
            failed(StoreError(f"{self._name}: the store is closed"))
            return
        self._asked.append(Asked(request, rows, committed, failed, alone))
        if not self._working and not self._kicked:
            self._kicked = True
            asyncio.get_running_loop().call_soon(self.kick)

    @abstractmethod
    def kick(self) -> None:
        """Write the waiting requests now, or after the transaction in progress."""

    @abstractmethod
    def when_durable(self, callback: Callable[[], None], failed: Callable[[Exception], None] | None) -> None:
        """Call ``callback`` once everything committed so far would survive a power cut.

        ``failed`` is called if the disk fails. Without it, the callback keeps waiting while the disk is full.
        """

    @abstractmethod
    def sync_soon(self) -> None:
        """Make all commits so far durable soon, with one sync for all of them."""

    async def close(self) -> None:
        """Finish all requests, make them durable, then stop."""
        self._closed = True
        while self._is_busy():
            self._idle = asyncio.get_running_loop().create_future()
            self._check_idle()
            await self._idle
        await self._thread.close()

    # For the engine

    @abstractmethod
    def _translated(self, wrong: Exception) -> Exception:
        """Return the error for the user."""

    @abstractmethod
    def _transaction(self, batch: Sequence[Asked]) -> list[Any]:
        """Run the requests in one transaction and commit it, in the thread."""

    def _next_batch(self) -> list[Asked]:
        """Take the next waiting requests that can share a transaction, up to the largest batch."""
        first = self._asked[0]
        rows = 0
        for number, asked in enumerate(self._asked):
            rows += asked.rows
            apart = asked.alone != first.alone or asked.by_itself or first.by_itself
            if number and (rows > self.largest_batch or apart):
                batch, self._asked = self._asked[:number], self._asked[number:]
                return batch
        batch, self._asked = self._asked, []
        return batch

    def _write_in_thread(self, batch: list[Asked]) -> None:
        took = 0.0

        def whole() -> list[Any]:
            nonlocal took
            began = time.perf_counter()
            results = self._transaction(batch)
            took = time.perf_counter() - began
            return results

        def done(results: Any, wrong: BaseException | None) -> None:
            self._working = False
            if isinstance(wrong, Exception):
                self._batch_failed(batch, wrong)
            else:
                self._batch_committed(batch, results, took)
            self.kick()

        self._working = True
        self._thread.start(whole, done)

    def _batch_committed(self, batch: list[Asked], results: list[Any], took: float) -> None:
        self.commits += 1
        if self.counters is not None and any(asked.rows for asked in batch):
            self.counters.committed(took, len(batch))
        for asked, result in zip(batch, results, strict=True):
            guarded(asked.committed, result)

    def _batch_failed(self, batch: list[Asked], wrong: Exception) -> None:
        told = self._translated(wrong)
        if isinstance(told, UNDECODABLE) and not isinstance(told, TaskmillError):
            told = corrupt(told, self._name).with_traceback(told.__traceback__)
            told.__cause__ = wrong
        if len(batch) > 1 and not isinstance(told, StoreBusy):
            # Run each again by itself, before later requests, so that only the faulty one fails.
            self._asked[:0] = [asked._replace(by_itself=True) for asked in batch]
            return
        for asked in batch:
            guarded(asked.failed, told)

    def _is_busy(self) -> bool:
        return bool(self._asked) or self._working or self._kicked

    def _check_idle(self) -> None:
        if self._idle is not None and not self._idle.done() and not self._is_busy():
            self._idle.set_result(None)


def guarded(callback: Callable[..., None], *args: Any) -> None:
    """Call a callback and log its exception: a faulty callback must not keep other callers from their results."""
    try:
        callback(*args)
    except Exception:  # noqa: BLE001 - it is logged
        logger.exception("a callback of the store failed")
