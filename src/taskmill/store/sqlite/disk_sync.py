"""The second stage of a commit: sync the write-ahead log to the disk, once for all waiting callers.

**A failed sync.** Linux reports a write error once and marks the pages that it could not write as clean. The next sync
succeeds without having written them. So after a failed sync the log is *in doubt*: nothing is acknowledged or committed
until the writer has rewritten the whole log and synced it successfully (decision 0027). Callers wait for that. If it
fails too, they get an error that says that their request may or may not be stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from taskmill.core.logs import logger
from taskmill.core.ports import Clock, StoreCounters
from taskmill.errors import StoreError, StoreLost
from taskmill.store.sql.group_commit import guarded
from taskmill.store.sql.store_thread import StoreThread
from taskmill.store.sqlite.log import LogFile

SYNC_AT_LATEST = 0.05
"""Longest delay, in seconds, before endings that no caller waits for are synced."""
SLOW_HANDOVER = 0.008
SLOW_DISK = 0.005
STAY_FOR = 5.0
GIVE_UP_FOR = 60.0
SMOOTHING = 0.3
ITERATIONS_FIRST = 3
"""Iterations of the event loop before a sync on it: the next transaction and the handlers that it starts go first."""
LONGEST_DELAY = 0.001
"""The longest time, in seconds, by which these may delay the sync."""

Durable = Callable[[], None]
Failed = Callable[[Exception], None]


class Handover:
    """The choice between a thread and the event loop for disk work, based on how long it took so far.

    A thread gets the GIL only when the loop releases it. A busy loop that polls its selector every few milliseconds
    releases the GIL and takes it back before the waiting thread wakes up, so the thread can starve for hundreds of
    milliseconds. Once work in the thread has been slow, work is done on the loop for a while, unless the disk turns out
    to be the slow part.
    """

    def __init__(self) -> None:
        self._on_loop_until = 0.0
        self._in_thread_until = 0.0
        self._thread_cost = 0.0
        self._loop_cost = 0.0

    @property
    def loop_is_busy(self) -> bool:
        return time.monotonic() < self._on_loop_until

    def thread_took(self, seconds: float) -> None:
        now = time.monotonic()
        if seconds > SLOW_HANDOVER and now >= self._in_thread_until:
            self._thread_cost = seconds
            self._loop_cost = 0.0
            self._on_loop_until = now + STAY_FOR

    def loop_took(self, seconds: float) -> None:
        self._loop_cost += SMOOTHING * (seconds - self._loop_cost)
        # Go back to the thread: the disk stalls the loop, and the thread was starved less than four times as long.
        if self._loop_cost > max(SLOW_DISK, self._thread_cost / 4):
            self._on_loop_until = 0.0
            self._in_thread_until = time.monotonic() + GIVE_UP_FOR


class DiskSync:
    """The sync stage of one writer.

    It calls ``mend`` to have the writer rewrite the log, ``lose`` to have it close the store, and ``idle`` whenever a
    sync has ended and the writer may be idle.
    """

    def __init__(
        self,
        log: LogFile,
        name: str,
        clock: Clock,
        handover: Handover,
        *,
        mend: Callable[[], None],
        lose: Callable[[StoreLost], None],
        idle: Callable[[], None],
    ) -> None:
        self.log = log
        self._name = name
        self._thread = StoreThread("taskmill-sync", clock)
        self._handover = handover
        self._mend = mend
        self._lose = lose
        self._idle = idle
        self._next: list[tuple[Durable, Failed | None]] = []
        """Callbacks that wait for a sync that has not started."""
        self._current: list[tuple[Durable, Failed | None]] = []
        """Callbacks that wait for the sync in progress."""
        self._soon: asyncio.TimerHandle | None = None
        self.has_unsynced = False
        """True if something was committed that no sync covers yet."""
        self.is_busy = False
        self.must_mend = False
        """True if the log has to be rewritten before the next commit."""
        self.counters: StoreCounters | None = None

    def begin(self) -> None:
        """Start the thread."""
        self._thread.begin()

    def when_durable(self, callback: Durable, failed: Failed | None) -> None:
        """Call ``callback`` once everything committed so far would survive a power cut.

        ``failed`` is called if the sync fails. Without it, the callback keeps waiting while the disk is full.
        """
        if not self.has_unsynced and not self.is_busy:
            callback()
        elif not self.has_unsynced:
            # The sync in progress covers every commit.
            self._current.append((callback, failed))
        else:
            self._next.append((callback, failed))
            self._begin()

    def _begin(self) -> None:
        if not self.is_busy:
            self.is_busy = True
            # Start after the other callbacks of this commit have registered, so that all of them share one sync.
            asyncio.get_running_loop().call_soon(self._sync, time.monotonic())

    def sync_soon(self) -> None:
        """Sync all commits so far within ``SYNC_AT_LATEST`` seconds."""
        if self.has_unsynced and self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SYNC_AT_LATEST, self._sync_now)

    def _sync_now(self) -> None:
        self._soon = None
        self.when_durable(_nothing, None)

    def _sync(self, asked_at: float, iterations: int = 0) -> None:
        """Sync the log in the thread, or on the loop if it would starve the thread."""
        if self.must_mend or self.log.in_doubt:
            self.must_mend = True
            self._mend()
            return
        began, on_loop = time.monotonic(), self._handover.loop_is_busy
        if on_loop and iterations < ITERATIONS_FIRST and began - asked_at < LONGEST_DELAY:
            asyncio.get_running_loop().call_soon(self._sync, asked_at, iterations + 1)
            return
        self.cover_commits()
        if not on_loop:
            self._thread.start(self.log.sync, partial(self._synced, began, self._handover.thread_took), hand_over=True)
            return
        wrong: Exception | None = None
        try:
            self.log.sync()
        except (OSError, StoreLost) as refused:
            wrong = refused
        self._synced(began, self._handover.loop_took, None, wrong)

    def _synced(
        self, began: float, note_duration: Callable[[float], None], _result: Any, refused: BaseException | None
    ) -> None:
        took = time.monotonic() - began
        note_duration(took)
        if self.counters is not None:
            self.counters.synced(took)
        if refused is None:
            self.succeeded()
            return
        if isinstance(refused, StoreLost):
            self._lose(refused)
            return
        logger.critical("%s: a sync to the disk failed (%s); the write-ahead log is written again", self._name, refused)
        self.must_mend = True
        self._mend()

    # Called by the writer

    def cover_commits(self) -> None:
        """Begin a sync, or a rewrite, that covers every commit so far."""
        self.is_busy = True
        self._current += self._next
        self._next = []
        self.has_unsynced = False

    def succeeded(self) -> None:
        """Answer the callers whose commits are on the disk now."""
        self.must_mend = False
        self.is_busy = False
        waiting, self._current = self._current, []
        for callback, _ in waiting:
            guarded(callback)
        if self._next:
            self._begin()
        self._idle()

    def refused(self, wrong: StoreError, *, for_good: bool) -> None:
        """Report a failed sync to the waiting callers.

        Callbacks without an error handler (announcements) keep waiting, unless the failure is permanent.
        """
        self.is_busy = False
        self.has_unsynced = True
        waiting = [*self._current, *self._next]
        self._current = []
        self._next = [] if for_good else [each for each in waiting if each[1] is None]
        for _, failed in waiting:
            if failed is not None:
                guarded(failed, wrong)
        self._idle()

    def hurry(self) -> None:
        """Start the sync that ``sync_soon`` has scheduled, without further delay."""
        if self._soon is not None:
            self._soon.cancel()
            self._sync_now()

    async def close(self) -> None:
        await self._thread.close()


def _nothing() -> None:
    """Do nothing: no caller waits for this sync."""
