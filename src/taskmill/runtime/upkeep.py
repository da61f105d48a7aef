"""Upkeep beside the dispatch loop: prune history, follow steps of the wall clock, end timed pauses, set damage aside.

The loop calls these chores and sleeps until :attr:`Upkeep.next_at` at the latest. Pruning and giving paused time back
run in asyncio tasks of their own, in small batches, so that other transactions are committed between them. If the store
refuses a chore, it is logged and tried again; a lost store (``StoreLost``) ends the loop instead.

A step of the wall clock is a change of the difference between the wall clock and the monotonic clock. It is noticed
here, and the store then moves delays with it: a task that is due "in ten minutes" keeps its ten minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable

from taskmill.core.logs import logger
from taskmill.core.ports import Clock, Dispatches, Maintained
from taskmill.errors import StoreCorrupt, StoreError, StoreLost
from taskmill.model.settings import PRUNE_BITE, Retention
from taskmill.policy.rules import Rules
from taskmill.policy.series import CLOCK_STEP_MS
from taskmill.runtime.announcer import Announcer, Commits, to_the_end

PRUNE_EVERY = 1000
"""While the scheduler is busy, history is pruned after this many endings."""
COUNT_DELAY_MS = 1000
"""How long history may exceed ``max_count``, in ms, if a tenth of ``max_count`` is less than ``PRUNE_EVERY``."""
SHORTEST_ALLOWANCE_MS = 60_000
"""How long a task may stay beyond ``max_age``, in ms, if a tenth of ``max_age`` is less."""
STORE_RETRY = 1.0
"""Seconds to wait before a write that the store refused is tried again."""
DAMAGE_INTERVAL = 60.0
"""Seconds between two searches for damaged rows, if the first found none."""
STILL = 1.0
"""Real seconds after which a manual clock that has not moved counts as stopped."""


class Upkeep:
    """Prunes history, adjusts delays when the wall clock steps, and ends timed pauses."""

    def __init__(self, store: Maintained, clock: Clock, retention: Retention | None, announcer: Announcer) -> None:
        self._store = store
        self._announcer = announcer
        self._clock = clock
        self._rules = [] if retention is None else retention.rules()
        self._ages = [(rule.endings, rule.max_age_ms) for rule in self._rules if rule.max_age_ms is not None]
        counts = [rule.max_count for rule in self._rules if rule.max_count is not None]
        # After these delays an ended task makes history too old or too long: one for each age, and one for small
        # counts, for which PRUNE_EVERY endings are too many.
        self._delays = [max_age + _allowance(max_age) for _, max_age in self._ages]
        self._delays += [COUNT_DELAY_MS] if min(counts, default=math.inf) < 10 * PRUNE_EVERY else []
        self._prune_at = clock.monotonic() if self._ages else None
        """When history may be too old or too long, on the monotonic clock; None until a task ends."""
        self.wake: Callable[[], None] = lambda: None
        """Called when :attr:`next_at` has changed."""
        self._ended_since = 0
        self._pruning: asyncio.Task[None] | None = None
        self._giving_back: asyncio.Task[None] | None = None
        self._offset = self._clock_offset()
        self._step_noticed = asyncio.Event()
        """Set when the loop has noticed a step of the wall clock."""
        self._step_retry_at: float | None = None
        """When a step that the store refused to follow is tried again, on the monotonic clock."""

    @property
    def next_at(self) -> float | None:
        """When the next chore is due, on the monotonic clock."""
        moments = (self._step_retry_at, None if self._pruning else self._prune_at)
        return min((moment for moment in moments if moment is not None), default=None)

    # Pruning

    def tasks_ended(self, count: int) -> None:
        """Count endings and prune when there were enough of them; otherwise plan the next pruning."""
        self._ended_since += count
        if self._ended_since >= PRUNE_EVERY:
            self._begin_pruning()
        else:
            self._plan_for_endings()

    def _plan_for_endings(self) -> None:
        """Plan to prune what ended since the last pruning, unless an earlier pruning is planned."""
        if self._ended_since and self._delays:
            planned = self._clock.monotonic() + min(self._delays) / 1000
            self._prune_at = planned if self._prune_at is None else min(self._prune_at, planned)

    def prune_if_due(self) -> None:
        """Begin to prune if history may be too old or too long."""
        if self._prune_at is not None and self._prune_at <= self._clock.monotonic():
            self._begin_pruning()

    def _begin_pruning(self) -> None:
        if self._pruning is None:
            self._pruning = asyncio.get_running_loop().create_task(self.prune())

    async def prune(self) -> None:
        """Prune history in batches until it is within its limits."""
        self._ended_since = 0
        try:
            # A batch that is not full was the last. Endings that come meanwhile are left to the next pruning.
            while self._rules and await self._prune() == PRUNE_BITE:
                continue
            self._prune_at = await self._next_pruning()
            # A task may have ended after history was read.
            self._plan_for_endings()
        except StoreError as wrong:
            logger.error("history could not be pruned, trying again later: %s", wrong)
            if self._delays:
                self._prune_at = self._clock.monotonic() + SHORTEST_ALLOWANCE_MS / 2000
        finally:
            self._pruning = None
            self.wake()

    async def _prune(self) -> int:
        # After a power cut the same tasks are deleted again.
        return await self._store.prune(self._rules, self._clock.now_ms(), PRUNE_BITE, durable=False)

    async def _next_pruning(self) -> float | None:
        """Return when to prune by age again, on the monotonic clock: a little late, to remove more at once."""
        now, moments = self._clock.now_ms(), list[int]()
        for endings, max_age in self._ages:
            oldest = await self._store.oldest_ended(endings)
            if oldest is not None:
                moments.append(max(oldest + max_age, now) + _allowance(max_age))
        return self._clock.monotonic() + (min(moments) - now) / 1000 if moments else None

    async def settle(self) -> None:
        """Finish pruning before the loop ends. Paused time that is still owed is left to the next dispatcher."""
        if self._giving_back is not None:
            self._giving_back.cancel()
            await asyncio.wait([self._giving_back])
        if self._pruning is not None:
            await asyncio.wait([self._pruning])
        if self._ended_since:
            await self.prune()

    # Steps of the wall clock

    @property
    def is_clock_stepped(self) -> bool:
        """True if the wall clock was stepped and the loop has not noticed it yet."""
        return self.is_stepped(self._clock.now_ms(), self._clock.monotonic())

    def is_stepped(self, now: int, monotonic: float) -> bool:
        """Return :attr:`is_clock_stepped` for clocks that were just read."""
        return abs(now - round(monotonic * 1000) - self._offset) >= CLOCK_STEP_MS

    def check_clock(self) -> None:
        """Wake the loop if the wall clock was stepped."""
        if self.is_clock_stepped:
            self.wake()

    async def settle_clock(self) -> bool:
        """Wait until the loop has followed a step of the wall clock; return True if there was one.

        Delays that were stored before the step then move with it, and new delays count from the new time. The wait is
        no longer than :data:`STORE_RETRY`.
        """
        if not self.is_clock_stepped:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STORE_RETRY):
                while self.is_clock_stepped:
                    self._step_noticed.clear()
                    self.wake()
                    await self._step_noticed.wait()
        return True

    async def follow_clock_step(self) -> int:
        """Move delays with a step of the wall clock. Return the step in ms, 0 if there was none."""
        offset = self._clock_offset()
        step = offset - self._offset
        self._step_retry_at = None
        if abs(step) < CLOCK_STEP_MS:
            return 0
        logger.warning("the wall clock was stepped by %+.3f s; delays keep their length", step / 1000)
        try:
            await self._store.shift_clock(step)
        except StoreLost:
            raise
        except StoreError as wrong:
            logger.error("delays could not be moved with the clock, retrying in %g s: %s", STORE_RETRY, wrong)
            self._step_retry_at = self._clock.monotonic() + STORE_RETRY
            return 0
        self._offset = offset
        self._step_noticed.set()
        if self._ages:
            # The age of history is measured by the wall clock.
            self._prune_at = self._clock.monotonic()
        return step

    def _clock_offset(self) -> int:
        return self._clock.now_ms() - round(self._clock.monotonic() * 1000)

    # Pauses

    async def end_pauses(self, rules: Rules) -> bool:
        """End the timed pauses that are over. Return True if the known rules contain such a pause.

        The time of ended pauses is given back to their tasks beside the loop.
        """
        if rules.controls.ended_pauses and self._giving_back is None:
            self._giving_back = asyncio.get_running_loop().create_task(self._give_back())
        at = rules.next_resumption()
        if at is None or at > (now := self._clock.now_ms()):
            return False
        await to_the_end(self._end_pauses(now))
        return True

    async def _end_pauses(self, now: int) -> None:
        try:
            # The store decides which pauses are over, because another process may have changed their ends.
            for scope in await self._store.end_pauses(now):
                self._announcer.scope_resumed(scope)
        except StoreLost:
            raise
        except StoreError as wrong:
            logger.error("a pause could not be ended, retrying in %g s: %s", STORE_RETRY, wrong)
            await wait_before_retry(self._clock)

    async def _give_back(self) -> None:
        """Give paused time back in batches, resting after each for as long as it took."""
        try:
            while True:
                began = time.perf_counter()
                if not await self._give_back_batch():
                    return
                await asyncio.sleep(time.perf_counter() - began)
        finally:
            self._giving_back = None

    async def _give_back_batch(self) -> bool:
        """Give some paused time back; return True if there may be more to do."""
        try:
            return await self._store.give_back()
        except StoreLost:
            return False
        except StoreError as wrong:
            logger.error("paused time could not be given back, retrying in %g s: %s", STORE_RETRY, wrong)
            await self._clock.wait(asyncio.Event(), self._clock.monotonic() + STORE_RETRY)
            return True


def _allowance(max_age_ms: int) -> int:
    """Return half of the allowed delay of pruning; the other half is for other delays of the loop."""
    return max(max_age_ms // 10, SHORTEST_ALLOWANCE_MS) // 2


class DamagedRows:
    """Ends tasks with damaged rows as dead letters, so that one damaged row does not stop all the others.

    All rows are searched, but only after a transaction of the dispatcher has met a damaged one.
    """

    def __init__(self, store: Dispatches, clock: Clock, commits: Commits) -> None:
        self._store = store
        self._clock = clock
        self._commits = commits
        self._not_before = float("-inf")

    async def set_aside(self, wrong: StoreError, *, running: bool = False) -> bool:
        """Set damaged rows aside if ``wrong`` reports damage; return True if there were some.

        Rows marked as running are included if ``running``: no handler of this process may be running then.
        """
        if not isinstance(wrong, StoreCorrupt) or self._clock.monotonic() < self._not_before:
            return False
        return await to_the_end(self._set_aside(running=running))

    async def _set_aside(self, *, running: bool) -> bool:
        now = self._clock.now_ms()
        try:
            done = await self._store.set_aside(now, running=running)
        except StoreError as again:
            logger.error("damaged rows cannot be set aside: %s", again)
            self._not_before = self._clock.monotonic() + DAMAGE_INTERVAL
            return False
        if not done.damaged:
            self._not_before = self._clock.monotonic() + DAMAGE_INTERVAL
            return False
        for damage in done.damaged:
            logger.error("%s: %s; it is set aside", self._store.name, damage)
        self._commits.publish(done.commit, now, durable=True)
        return True

    async def set_aside_or_wait(self, wrong: StoreError) -> None:
        """Handle a refused turn: set damaged rows aside, or else wait a moment before the next turn."""
        if not await self.set_aside(wrong):
            logger.error("the store refused a turn, retrying in %g s: %s", STORE_RETRY, wrong)
            await wait_before_retry(self._clock)

    async def despite_damage(self, step: Callable[[], Awaitable[None]]) -> None:
        """Run a step of the start; if damaged rows made it fail, set them aside and run it again."""
        try:
            await step()
        except StoreCorrupt as wrong:
            if not await self.set_aside(wrong, running=True):
                raise
            await step()


async def wait_unless_still(clock: Clock, event: asyncio.Event, until: float) -> bool:
    """Wait as ``clock.wait`` does; return False if the clock has not moved for :data:`STILL`. May return early.

    A manual clock moves only when a test advances it. A test that closes its scheduler no longer advances it, so
    waiting for the clock alone would never end.
    """
    before = clock.monotonic()
    if event.is_set() or until <= before:
        return True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STILL):
            await clock.wait(event, until)
            return True
    return clock.monotonic() > before


async def wait_before_retry(clock: Clock) -> None:
    """Wait for :data:`STORE_RETRY`, because the store has refused something."""
    await wait_unless_still(clock, asyncio.Event(), clock.monotonic() + STORE_RETRY)
