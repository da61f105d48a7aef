"""Notice commits of other processes on the same store.

While this scheduler dispatches, a caller here waits for a task, or something listens to events, the store is asked at
intervals whether another process has committed: often while others are active, seldom otherwise. SQLite answers in
microseconds. A store with notifications (PostgreSQL) is asked when one arrives, and otherwise only as a safety net. The
intervals are real time even under a manual clock, because other processes run in real time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from taskmill.core.logs import logger
from taskmill.core.ports import Shared
from taskmill.errors import StoreError, StoreLost
from taskmill.model.commit import Changes
from taskmill.runtime.announcer import Waiters

ACTIVE_INTERVAL = 0.02
"""Seconds between two checks while other processes are active."""
IDLE_INTERVAL = 0.2
"""Seconds between two checks while other processes are idle."""
NOTIFIED_INTERVAL = 5.0
"""The longest time, in seconds, between two checks of a store with notifications, in case one is lost."""
ACTIVE_FOR = 100
"""How many quick checks follow the last commit of another process."""


class Neighbours:
    """Calls ``changed`` after another process has committed, and wakes the callers whose tasks it ended."""

    def __init__(self, store: Shared, waiters: Waiters) -> None:
        self._store = store
        self._waiters = waiters
        self._watching: asyncio.Task[None] | None = None
        self._checked_at = 0.0
        self.changed: Callable[[Changes], None] | None = None
        self.heard: Callable[[], None] | None = None
        """Called like ``changed``, while something listens to events."""
        self.lost: Callable[[StoreLost], None] | None = None
        """Called when the store can no longer be used."""
        self.check_clock: Callable[[], None] = lambda: None
        """Called at each check, so that the loop follows a step of the wall clock as soon as other processes do."""

    def watch(self) -> None:
        """Start to check; the checks stop by themselves when no loop, caller or listener needs them."""
        if self._watching is None and self._store.is_shared:
            self._watching = asyncio.get_running_loop().create_task(self._watch(), name="taskmill-neighbours")

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def _watch(self) -> None:
        quick = ACTIVE_FOR
        try:
            while self.changed is not None or self.heard is not None or self._waiters.ids:
                await self._wait(ACTIVE_INTERVAL if quick else IDLE_INTERVAL)
                quick = max(quick - 1, 0)
                self.check_clock()
                if await self._check():
                    quick = ACTIVE_FOR
        finally:
            self._watching = None

    async def _wait(self, interval: float) -> None:
        """Wait for ``interval`` or, if the store has notifications, for the next one.

        Checks that follow notifications are at least :data:`ACTIVE_INTERVAL` apart, however many arrive.
        """
        if self._store.news is None:
            await asyncio.sleep(interval)
            return
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NOTIFIED_INTERVAL):
                await self._store.news.wait()
        await asyncio.sleep(self._checked_at + ACTIVE_INTERVAL - loop.time())
        self._store.news.clear()
        self._checked_at = loop.time()

    async def _check(self) -> bool:
        """Report commits of other processes; return True if there were any."""
        try:
            changes = await self._store.foreign_changes()
            if changes is None:
                return False
            if self.changed is not None:
                self.changed(changes)
            if self.heard is not None:
                self.heard()
            if ids := self._waiters.ids:
                self._waiters.ended(await self._store.ended_among(ids))
        except StoreLost as wrong:
            # Each woken caller reads its task again, and gets this error itself.
            self._waiters.ended(self._waiters.ids)
            if self.lost is not None:
                self.lost(wrong)
            return False
        except StoreError as wrong:
            logger.error("checking for commits of other processes failed, trying again: %s", wrong)
            return False
        return True
