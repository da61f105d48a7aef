"""Setting damaged rows aside, so that one of them does not keep the others from running."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from taskmill.core.ports import Clock, Dispatches
from taskmill.errors import StoreCorrupt, StoreError
from taskmill.observe.log import logger
from taskmill.runtime.commits import Commits
from taskmill.runtime.patience import pause
from taskmill.runtime.upkeep import STORE_PATIENCE

INTERVAL = 60.0
"""Seconds between two looks through all rows, if the first one has found nothing."""


class SettingAside:
    """Looks for damaged rows after a commit of the dispatcher has met one, and ends their tasks as dead letters."""

    def __init__(self, store: Dispatches, clock: Clock, commits: Commits) -> None:
        self._store = store
        self._clock = clock
        self._commits = commits
        self._not_before = float("-inf")

    async def after(self, wrong: StoreError, *, running: bool = False) -> bool:
        """Look for damaged rows if that is what ``wrong`` is about; True if some were set aside.

        ``running``: no handler of this process is at work, so rows that are marked as running count, too.
        """
        if not isinstance(wrong, StoreCorrupt) or self._clock.monotonic() < self._not_before:
            return False
        now = self._clock.now_ms()
        try:
            done = await self._store.set_aside(now, running=running)
        except StoreError as again:
            logger.error("damaged rows cannot be set aside: %s", again)
            self._not_before = self._clock.monotonic() + INTERVAL
            return False
        if not done.damaged:
            self._not_before = self._clock.monotonic() + INTERVAL
            return False
        for damage in done.damaged:
            logger.error("%s: %s; it is set aside", self._store.name, damage)
        self._commits.publish(done.commit, now, durable=True)
        return True

    async def or_wait(self, wrong: StoreError) -> None:
        """Deal with a turn that was refused: set damaged rows aside, or wait a moment before the next try."""
        if not await self.after(wrong):
            logger.error("the store refused a turn, trying again: %s", wrong)
            await pause(self._clock, STORE_PATIENCE)

    async def despite_damage(self, step: Callable[[], Awaitable[None]]) -> None:
        """Take a step of a start, again if it fails because of rows that can be set aside."""
        try:
            await step()
        except StoreCorrupt as wrong:
            if not await self.after(wrong, running=True):
                raise
            await step()
