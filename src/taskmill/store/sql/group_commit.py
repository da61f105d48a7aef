"""Group commit: requests that arrive together, or while a transaction is under way, share the next one.

A request is a function of the connection. It must be repeatable: if one of a batch fails, the transaction is rolled
back and each runs again by itself, so that only the faulty one fails.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from taskmill.errors import StoreBusy, StoreError, TaskmillError
from taskmill.logs import logger
from taskmill.ports import Clock
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.damage import UNDECODABLE, corrupt
from taskmill.store.sql.thread import StoreThread
from taskmill.store_meter import StoreMeter

T = TypeVar("T")
Request = Callable[[Connection], T]


class Asked(NamedTuple):
    """A request that waits for its transaction."""

    request: Request[Any]
    rows: int
    """How much work it is; 0 promises that it only reads."""
    committed: Callable[[Any], None]
    failed: Callable[[Exception], None]
    alone: bool
    """Whether nobody else may write meanwhile."""
    by_itself: bool = False
    """Whether it must not share its transaction with other requests."""
    again: bool = False
    """True if the disk has refused it once, and something was done about that."""


class GroupCommit(ABC):
    """The writer of a store: owns the connection that writes, and a thread for it. Lives on one event loop."""

    largest_batch: int
    """Rows of one transaction; more wait for the next, so that nobody waits long."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._thread = StoreThread("taskmill-writer", clock)
        self._asked: list[Asked] = []
        self._kicked = False
        self._working = False
        """Whether the connection is in the hands of the thread."""
        self._idle: asyncio.Future[None] | None = None
        self._closed = False
        self.commits = 0
        self.meter: StoreMeter | None = None

    def measure(self, meter: StoreMeter) -> None:
        """Tell ``meter`` what writing costs."""
        self.meter = meter

    def ask(
        self,
        request: Request[T],
        rows: int = 1,
        *,
        alone: bool = False,
        durable: bool = True,
        at_commit: Callable[[T], None] | None = None,
    ) -> Awaitable[T]:
        """Run ``request`` in the next transaction; the answer comes when it is committed and, if asked, durable.

        ``rows`` says how much work it is; 0 promises that it only reads, and needs no transaction of its own.
        ``at_commit`` is called at the commit, in its order, whoever still waits for the answer.
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
        """Like :meth:`ask`, with a call back on the loop at the commit, in its order, whoever still waits."""
        if self._closed:
            failed(StoreError(f"{self._name}: the store is closed"))
            return
        self._asked.append(Asked(request, rows, committed, failed, alone))
        if not self._working and not self._kicked:
            self._kicked = True
            asyncio.get_running_loop().call_soon(self.kick)

    @abstractmethod
    def kick(self) -> None:
        """Write what waits, unless a transaction is under way: then it is written after that."""

    @abstractmethod
    def when_durable(self, callback: Callable[[], None], failed: Callable[[Exception], None] | None) -> None:
        """Call back once everything committed so far would survive a power cut, never if it would not.

        ``failed`` is called if the disk refuses; without it, a disk that is full is waited for.
        """

    @abstractmethod
    def sync_soon(self) -> None:
        """Make what was committed durable within a moment, once for all of it."""

    async def close(self) -> None:
        """Finish what was asked, make it durable, then stop."""
        self._closed = True
        while self._is_busy():
            self._idle = asyncio.get_running_loop().create_future()
            self._check_idle()
            await self._idle
        await self._thread.close()

    # For the engine

    @abstractmethod
    def _translated(self, wrong: Exception) -> Exception:
        """What the user is told."""

    @abstractmethod
    def _transaction(self, batch: Sequence[Asked]) -> list[Any]:
        """Run the requests in one transaction and commit it, in the thread."""

    def _next_batch(self) -> list[Asked]:
        """Whatever waits and goes together, up to a size."""
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
        if self.meter is not None and any(asked.rows for asked in batch):
            self.meter.committed(took, len(batch))
        for asked, result in zip(batch, results, strict=True):
            guarded(asked.committed, result)

    def _batch_failed(self, batch: list[Asked], wrong: Exception) -> None:
        told = self._translated(wrong)
        if isinstance(told, UNDECODABLE) and not isinstance(told, TaskmillError):
            told = corrupt(told, self._name).with_traceback(told.__traceback__)
            told.__cause__ = wrong
        if len(batch) > 1 and not isinstance(told, StoreBusy):
            # Each again, by itself, so that only the faulty one fails; before whatever came later.
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
    """A fault in what one caller does with its answer must not keep the others from theirs."""
    try:
        callback(*args)
    except Exception:  # noqa: BLE001 - it is logged
        logger.exception("a listener of the store failed")
