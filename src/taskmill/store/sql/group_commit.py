"""Group commit: requests that arrive together, or during a transaction, share the next transaction.

A request is a function of the connection. It must be repeatable: if one request of a batch fails, the transaction is
rolled back and each runs again in a transaction of its own, so that only the faulty one fails.
"""

from __future__ import annotations

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakSet

from taskmill.core.logs import logger
from taskmill.errors import StoreBusy, StoreError, StoreLost, TaskmillError
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.locating import UNDECODABLE, corrupt
from taskmill.store.sql.store_thread import StoreThread, fail, succeed

if TYPE_CHECKING:
    from taskmill.core.ports import Clock, StoreCounters
    from taskmill.model.turn import TurnResult

T = TypeVar("T")
Request = Callable[[Connection], T]


class Asked(NamedTuple):
    """A request that waits for its transaction. Its callbacks run on the loop, in commit order."""

    request: Request[Any]
    rows: int
    """The amount of work; 0 promises that the request only reads."""
    answered: Callable[[Any], None]
    """Called with the result: after the commit or, with ``durable``, once the commit is durable."""
    failed: Callable[[Exception], None]
    at_commit: Callable[[Any], None] | None = None
    """Called with the result right after the commit."""
    alone: bool = False
    """True if the transaction must exclude other writers."""
    durable: bool = True
    by_itself: bool = False
    """True if the request must not share its transaction with other requests."""
    again: bool = False
    """True if this is the second try after a disk error."""
    patience: float = 0.0
    """How long, in seconds, the answer may wait until the event loop has other work."""


class Batch(NamedTuple):
    """Requests that share a transaction."""

    asked: list[Asked]
    rows: int
    """The amount of work; 0 if every request only reads."""

    @property
    def patience(self) -> float:
        return min(asked.patience for asked in self.asked)


class _Lasting(asyncio.Future[T]):
    """An answer that is not lost if the task that waits for it is cancelled.

    The task is cancelled at once if ``cancel_request`` returns True, otherwise when the answer is here.
    """

    cancel_request: Callable[[], bool]

    def cancel(self, msg: Any | None = None) -> bool:
        return not self.done() and self.cancel_request() and super().cancel(msg)


class RequestCancelled(Exception):
    """Raised by a transaction that could not begin yet, because one of its requests was cancelled."""


class GroupCommit(ABC):
    """The writer of a store. It owns the connection that writes and a thread for it, and belongs to one event loop."""

    largest_batch: int
    """The largest number of rows in a transaction; further requests wait for the next, so that no caller waits long."""
    is_always_alone = False
    """True if every transaction of the engine excludes other writers."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._thread = StoreThread("taskmill-writer", clock)
        self._asked: list[Asked] = []
        self._kicked = False
        self._working = False
        """True while the thread uses the connection."""
        self._idle: asyncio.Future[None] | None = None
        self._cancelled: Request[Any] | None = None
        """A request of the current batch that is not to begin any more."""
        self._closed: StoreError | None = None
        """The reason why no request is accepted any longer."""
        self.commits = 0
        self.counters: StoreCounters | None = None
        _writers.add(self)

    def begin(self) -> None:
        """Start what the writer needs later."""
        self._thread.begin()

    def refuse_in_forked_child(self) -> None:
        """Accept no request in a forked process: the connections belong to its parent."""
        self._closed = StoreLost(
            "the store was opened before this process was forked; close it before the fork and open it in each process"
        )

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
        answered, failed = partial(succeed, answer), partial(fail, answer)
        self.post(Asked(request, rows, answered, failed, at_commit, alone, durable))
        return answer

    async def commit_turn(
        self, request: Request[TurnResult], rows: int, *, alone: bool = False, patience: float = 0.0
    ) -> TurnResult:
        """Run ``request`` in the next transaction; return its result once committed, even to a cancelled caller.

        The result says that the caller was cancelled. If the request fails, or its transaction has not begun, the
        caller is cancelled as usual.
        """
        answer: _Lasting[TurnResult] = _Lasting()
        answer.cancel_request = partial(self._cancel, request)
        answered, failed = answer.set_result, answer.set_exception
        self.post(Asked(request, rows, answered, failed, None, alone, durable=False, patience=patience))
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.cancelled() or answer.exception() is not None:
                raise
            result = answer.result()
            result.is_cancelled = True
            return result

    def _cancel(self, request: Request[Any]) -> bool:
        """Cancel a request that waits for a batch; return False if it is in a batch already.

        A transaction that cannot begin, because another process has the write lock, then gives up the request.
        """
        waiting = [asked for asked in self._asked if asked.request is not request]
        if len(waiting) < len(self._asked):
            self._asked = waiting
            return True
        self.fetch()
        self._cancelled = request
        return False

    def post(self, asked: Asked) -> None:
        """Run a request in the next transaction, and call it back."""
        if self._closed is not None:
            asked.failed(self._closed)
            return
        self._asked.append(asked)
        self.fetch()
        self._kick_soon()

    def fetch(self) -> None:
        """Do not keep an answer waiting any longer for which requests were patient."""
        if self._working:
            self._thread.fetch()

    def _kick_soon(self) -> None:
        if self._asked and not self._working and not self._kicked:
            self._kicked = True
            asyncio.get_running_loop().call_soon(self.kick)

    @abstractmethod
    def writes_in_thread(self, rows: int) -> bool:
        """True if a batch of so many rows is written in the thread, so that handlers run meanwhile."""

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
        self._closed = self._closed or StoreError(f"{self._name}: the store is closed")
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
    def _transaction(self, batch: Batch) -> list[Any]:
        """Run the requests in one transaction and commit it, in the thread."""

    def _next_batch(self) -> Batch:
        """Take the next waiting requests that can share a transaction, up to the largest batch."""
        first = self._asked[0]
        rows = 0
        for number, asked in enumerate(self._asked):
            apart = asked.by_itself or first.by_itself or (asked.alone != first.alone and not self.is_always_alone)
            if number and (rows + asked.rows > self.largest_batch or apart):
                batch, self._asked = self._asked[:number], self._asked[number:]
                return Batch(batch, rows)
            rows += asked.rows
        batch, self._asked = self._asked, []
        return Batch(batch, rows)

    def _write_in_thread(self, batch: Batch) -> None:
        self._working = True
        patience = batch.patience
        work, written = partial(self._timed, batch), partial(self._written, batch)
        self._thread.start(work, written, hand_over=not patience, patience=patience)

    def _timed(self, batch: Batch) -> tuple[list[Any], float]:
        began = time.perf_counter()
        return self._transaction(batch), time.perf_counter() - began

    def _written(self, batch: Batch, written: Any, wrong: BaseException | None) -> None:
        self._working = False
        cancelled, self._cancelled = self._cancelled, None
        if wrong is None:
            self._batch_committed(batch, *written)
        elif isinstance(wrong, RequestCancelled):
            self._asked[:0] = [asked for asked in batch.asked if asked.request is not cancelled]
            for asked in batch.asked:
                if asked.request is cancelled:
                    guarded(asked.failed, wrong)
        elif isinstance(wrong, Exception):
            self._batch_failed(batch, wrong)
        else:
            self._batch_interrupted(batch)
        self.kick()

    def _batch_committed(self, batch: Batch, results: list[Any], took: float) -> None:
        self.commits += 1
        if self.counters is not None and batch.rows:
            self.counters.committed(took, len(batch.asked))
        for asked, result in zip(batch.asked, results, strict=True):
            if asked.at_commit is not None:
                guarded(asked.at_commit, result)
            if asked.durable and asked.rows:
                guarded(self.when_durable, partial(asked.answered, result), asked.failed)
            else:
                guarded(asked.answered, result)

    def _batch_failed(self, batch: Batch, wrong: Exception) -> None:
        told = self._translated(wrong)
        if isinstance(told, UNDECODABLE) and not isinstance(told, TaskmillError):
            told = corrupt(told, self._name).with_traceback(told.__traceback__)
            told.__cause__ = wrong
        if len(batch.asked) > 1 and not isinstance(told, StoreBusy):
            # Run each again by itself, before later requests, so that only the faulty one fails.
            self._asked[:0] = [asked._replace(by_itself=True) for asked in batch.asked]
            return
        for asked in batch.asked:
            guarded(asked.failed, told)

    def _batch_interrupted(self, batch: Batch) -> None:
        """Answer the requests of a transaction that ``KeyboardInterrupt`` or ``SystemExit`` has interrupted."""
        uncertain = StoreError(
            f"{self._name}: the program was interrupted; this request may or may not be stored. Check that before you "
            "repeat it"
        )
        for asked in batch.asked:
            guarded(asked.failed, uncertain)

    def _is_busy(self) -> bool:
        return bool(self._asked) or self._working or self._kicked

    def _check_idle(self) -> None:
        if self._idle is not None and not self._idle.done() and not self._is_busy():
            self._idle.set_result(None)


_writers: WeakSet[GroupCommit] = WeakSet()


def _refuse_in_forked_child() -> None:
    for writer in _writers:
        writer.refuse_in_forked_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_refuse_in_forked_child)


def guarded(callback: Callable[..., None], *args: Any) -> None:
    """Call a callback and log its exception: a faulty callback must not keep other callers from their results."""
    try:
        callback(*args)
    except Exception:  # noqa: BLE001 - it is logged
        logger.exception("a callback of the store failed")
