"""The night shift beside the loop: pruning history in small bites, noticing steps of the clock, ending timed pauses."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from taskmill.core.ports import Clock, Maintained
from taskmill.errors import StoreError, StoreLost
from taskmill.model.settings import PRUNE_BITE, Retention
from taskmill.observe.log import logger
from taskmill.policy.rules import Rules
from taskmill.policy.series import CLOCK_STEP_MS
from taskmill.runtime.announcer import Announcer
from taskmill.runtime.patience import pause

PRUNE_EVERY = 1000
"""Endings between two looks at retention while the scheduler is busy."""
SHORTEST_ALLOWANCE_MS = 60_000
"""History may be older than its ``max_age`` by a tenth of that, or by so much if that is longer."""
STORE_PATIENCE = 1.0
"""How long to wait before what the store refused is tried again."""


class Upkeep:
    """Keeps history within its limits and relative delays true."""

    def __init__(self, store: Maintained, clock: Clock, retention: Retention | None, announcer: Announcer) -> None:
        self._store = store
        self._announcer = announcer
        self._clock = clock
        self._rules = [] if retention is None else retention.rules()
        self._ages = [(rule.endings, rule.max_age_ms) for rule in self._rules if rule.max_age_ms is not None]
        self._prune_at = clock.monotonic() if self._ages else None
        """When history may have grown too old, on the steady clock; None until something ends."""
        self.wake: Callable[[], None] = lambda: None
        """Called when :attr:`next_at` has changed."""
        self._ended_since = 0
        self._pruning: asyncio.Task[None] | None = None
        self._giving_back: asyncio.Task[None] | None = None
        self._offset = self._clock_offset()
        self._noticed = asyncio.Event()
        """Set when a step of the clock has been noticed."""
        self._next_try: float | None = None
        """When a step of the clock that the store refused to hear of is told again, on the steady clock."""

    @property
    def next_at(self) -> float | None:
        """When there is something to do, on the steady clock."""
        moments = (self._next_try, None if self._pruning else self._prune_at)
        return min((moment for moment in moments if moment is not None), default=None)

    def tasks_ended(self, count: int) -> None:
        self._ended_since += count
        if self._ended_since >= PRUNE_EVERY:
            self._begin_pruning()
        elif count and self._prune_at is None and self._ages:
            soonest = min(max_age + _allowance(max_age) for _, max_age in self._ages)
            self._prune_at = self._clock.monotonic() + soonest / 1000

    def prune_if_due(self) -> None:
        """Begin to prune history that may have grown too old."""
        if self._prune_at is not None and self._prune_at <= self._clock.monotonic():
            self._begin_pruning()

    def _begin_pruning(self) -> None:
        if self._pruning is None:
            self._pruning = asyncio.get_running_loop().create_task(self.prune())

    async def prune(self) -> None:
        """Prune until history is within its limits; others commit between the bites."""
        self._ended_since = 0
        try:
            # A bite that is not full was the last: what ends meanwhile is left to the next look.
            while self._rules and await self._store.prune(self._rules, self._clock.now_ms(), PRUNE_BITE) == PRUNE_BITE:
                continue
            self._prune_at = await self._next_pruning()
        except StoreError as wrong:
            logger.error("history could not be pruned: %s", wrong)
            if self._ages:
                self._prune_at = self._clock.monotonic() + SHORTEST_ALLOWANCE_MS / 2000
        finally:
            self._pruning = None
            self.wake()

    async def _next_pruning(self) -> float | None:
        """When the oldest history will be too old, on the steady clock; a little later, to take more at once."""
        now, moments = self._clock.now_ms(), list[int]()
        for endings, max_age in self._ages:
            oldest = await self._store.oldest_ended(endings)
            if oldest is not None:
                moments.append(max(oldest + max_age, now) + _allowance(max_age))
        return self._clock.monotonic() + (min(moments) - now) / 1000 if moments else None

    async def settle(self) -> None:
        """Finish what was begun, before the loop goes away; what is left of paused time waits for the next one."""
        if self._giving_back is not None:
            self._giving_back.cancel()
            await asyncio.wait([self._giving_back])
        if self._pruning is not None:
            await asyncio.wait([self._pruning])
        if self._ended_since:
            await self.prune()

    @property
    def is_clock_stepped(self) -> bool:
        """True if the wall clock was stepped since the loop has looked at it."""
        return abs(self._clock_offset() - self._offset) >= CLOCK_STEP_MS

    async def step_noticed(self) -> None:
        """Make the loop look at the clock, and wait until it has; a loop that cannot is not waited for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STORE_PATIENCE):
                while self.is_clock_stepped:
                    self._noticed.clear()
                    self.wake()
                    await self._noticed.wait()

    async def notice_clock_step(self) -> int:
        """By how many ms the wall clock was stepped, 0 if it was not; what is due "after a delay" keeps its delay."""
        offset = self._clock_offset()
        step = offset - self._offset
        self._next_try = None
        if abs(step) < CLOCK_STEP_MS:
            return 0
        logger.warning("the wall clock was stepped by %+.3f s; delays are kept", step / 1000)
        try:
            await self._store.shift_clock(step)
        except StoreLost:
            raise
        except StoreError as wrong:
            logger.error("delays could not be moved with the clock, trying again: %s", wrong)
            self._next_try = self._clock.monotonic() + STORE_PATIENCE
            return 0
        self._offset = offset
        self._noticed.set()
        if self._ages:
            # Ages are told by the wall clock.
            self._prune_at = self._clock.monotonic()
        return step

    async def end_pauses(self, rules: Rules) -> bool:
        """End the pauses whose time has come, as of that time; says whether there should be any.

        The time of those that have ended is given back beside the loop.
        """
        if rules.controls.ended_pauses and self._giving_back is None:
            self._giving_back = asyncio.get_running_loop().create_task(self._give_back())
        now = self._clock.now_ms()
        at = rules.next_resumption()
        if at is None or at > now:
            return False
        try:
            # The store knows best: another process may have changed when a pause ends.
            for scope in await self._store.end_pauses(now):
                self._announcer.scope_resumed(scope)
        except StoreLost:
            raise
        except StoreError as wrong:
            logger.error("a pause could not be ended, trying again: %s", wrong)
            await pause(self._clock, STORE_PATIENCE)
        return True

    async def _give_back(self) -> None:
        """Take bites until nothing is owed; as long as each took, others have the store to themselves."""
        try:
            while True:
                began = time.perf_counter()
                if not await self._gave_back():
                    return
                await asyncio.sleep(time.perf_counter() - began)
        finally:
            self._giving_back = None

    async def _gave_back(self) -> bool:
        """Take one bite; says whether there may be more to do."""
        try:
            return await self._store.give_back()
        except StoreLost:
            return False
        except StoreError as wrong:
            logger.error("paused time could not be given back, trying again: %s", wrong)
            await self._clock.wait(asyncio.Event(), self._clock.monotonic() + STORE_PATIENCE)
            return True

    def _clock_offset(self) -> int:
        return self._clock.now_ms() - round(self._clock.monotonic() * 1000)


def _allowance(max_age_ms: int) -> int:
    """Half of what is allowed: the other half is for whatever else delays the loop."""
    return max(max_age_ms // 10, SHORTEST_ALLOWANCE_MS) // 2
