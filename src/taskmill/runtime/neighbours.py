"""Noticing other processes on the same file.

SQLite tells in microseconds whether anyone else has committed. While this scheduler dispatches, or somebody here waits
for a task, we ask: often while others are active, seldom while they are not. A store that tells of news by itself is
hardly asked otherwise. This is real time even under a manual clock, because other processes live in real time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from taskmill.core.ports import Shared
from taskmill.errors import StoreError, StoreLost
from taskmill.observe.log import logger
from taskmill.runtime.waiters import Waiters

SOON = 0.02
SELDOM = 0.2
UNTOLD = 5.0
"""Where news are told: so often all the same, and whether anybody still needs them."""
ACTIVE_FOR = 100
"""How many quick looks follow the last foreign commit."""


class Neighbours:
    """Calls ``changed`` after another process has committed, and wakes waiters whose tasks it ended."""

    def __init__(self, store: Shared, waiters: Waiters) -> None:
        self._store = store
        self._waiters = waiters
        self._watching: asyncio.Task[None] | None = None
        self._looked_at = 0.0
        self.changed: Callable[[], None] | None = None
        self.lost: Callable[[StoreLost], None] | None = None
        """Called when the store can no longer be used."""
        self.look_at_clock: Callable[[], None] = lambda: None
        """Called at each look: other processes go by the new time at once when the wall clock is stepped."""

    def watch(self) -> None:
        """Start looking; it stops by itself when nobody needs it."""
        if self._watching is None and self._store.is_shared:
            self._watching = asyncio.get_running_loop().create_task(self._watch(), name="taskmill-neighbours")

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def _watch(self) -> None:
        quick = ACTIVE_FOR
        try:
            while self.changed is not None or self._waiters.ids:
                await self._wait(SOON if quick else SELDOM)
                quick = max(quick - 1, 0)
                self.look_at_clock()
                if await self._look():
                    quick = ACTIVE_FOR
        finally:
            self._watching = None

    async def _wait(self, interval: float) -> None:
        """Until it is time to ask, or there is news; who writes all the time is not asked more often for that."""
        if self._store.news is None:
            await asyncio.sleep(interval)
            return
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(UNTOLD):
                await self._store.news.wait()
        await asyncio.sleep(self._looked_at + SOON - loop.time())
        self._store.news.clear()
        self._looked_at = loop.time()

    async def _look(self) -> bool:
        try:
            if not await self._store.foreign_changes():
                return False
            if self.changed is not None:
                self.changed()
            if ids := self._waiters.ids:
                self._waiters.ended(await self._store.ended_among(ids))
        except StoreLost as wrong:
            # They look once more, and learn of it that way.
            self._waiters.ended(self._waiters.ids)
            if self.lost is not None:
                self.lost(wrong)
            return False
        except StoreError as wrong:
            logger.error("looking for other processes failed, trying again: %s", wrong)
            return False
        return True
