"""Shut a dispatcher down: stop claiming, let handlers finish, stop the others, return the tasks that do not stop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from taskmill.core.ports import Clock, DispatchRight, Store
from taskmill.model.attempt import StopReason
from taskmill.observe.log import about, logger
from taskmill.runtime.attempt import Attempt
from taskmill.runtime.loop import DispatchLoop
from taskmill.runtime.patience import wait_unless_still


class Closing:
    """Ends one dispatcher within a bounded time: see :meth:`shut_down`."""

    def __init__(self, loop: DispatchLoop, store: Store, clock: Clock) -> None:
        self._loop = loop
        self._attempts = loop.attempts
        self._store = store
        self._clock = clock
        self._quiet_by = math.inf
        self._given_up: list[Attempt] = []
        """Attempts that did not stop in time, and whose tasks are still marked as running."""

    async def shut_down(self, grace: float) -> None:
        """Stop claiming, let handlers finish for ``grace`` seconds, stop the others, give up those that do not stop."""
        self._loop.claim_no_more()
        await self._run_until_quiet(grace, lambda _: True)
        self._loop.cron.note_cut_short(self._attempts.open.values())
        for id in list(self._attempts.open):
            self._attempts.stop(id, StopReason.SHUTDOWN)
        patience = 1.0 if math.isinf(grace) else max(grace, 1.0)
        await self._run_until_quiet(patience, lambda attempt: attempt.task.cron is None or attempt.can_be_stopped)
        self._give_up()
        if not self._store.is_cluster:
            # No other dispatcher starts these tasks, because this process keeps the right to dispatch.
            self._return_given_up(lingering=True)
        await self._loop.commit_outcomes()

    async def settle(self) -> None:
        """Return given-up tasks whose code has ended since, so that other nodes can start them at once."""
        for _ in range(5):
            # A cancelled handler or hook on the event loop needs a few iterations to end.
            await asyncio.sleep(0)
        if self._return_given_up(lingering=False):
            await self._loop.commit_outcomes()

    def _give_up(self) -> None:
        """Stop waiting for all open attempts: their tasks, and hooks that are at work, will run again."""
        for attempt in list(self._attempts.open.values()):
            id, type = attempt.task.id, attempt.task.type
            logger.warning("task %d (%s) did not stop for shutdown; it will run again", id, type, extra=about(id, type))
            self._given_up.append(attempt)
            self._attempts.give_up(attempt)

    def _return_given_up(self, *, lingering: bool) -> bool:
        """Return given-up tasks to the queue, those with code at work only if ``lingering``; True if there were any."""
        ready = [attempt for attempt in self._given_up if lingering or attempt not in self._attempts.lingering]
        self._given_up = [attempt for attempt in self._given_up if attempt not in ready]
        for attempt in ready:
            self._attempts.return_given_up(attempt)
        return bool(ready)

    def hurry(self, grace: float) -> None:
        """Shorten the time that handlers have to finish to at most ``grace`` seconds from now."""
        self._quiet_by = min(self._quiet_by, self._clock.monotonic() + grace)
        self._loop.wake()

    async def _run_until_quiet(self, longest: float, waits_for: Callable[[Attempt], bool]) -> None:
        self._quiet_by = self._clock.monotonic() + longest
        while self._loop.has_outcomes or any(map(waits_for, self._attempts.open.values())):
            began = self._clock.monotonic()
            if began >= self._quiet_by:
                return
            committed = await self._loop.commit_turn()
            until = min(self._quiet_by, self._attempts.next_deadline() or math.inf)
            if committed is not None:
                moves = committed or self._clock.monotonic() > began
            elif math.isinf(until):
                await self._clock.wait(self._loop.woken, None)
                moves = True
            else:
                moves = await wait_unless_still(self._clock, self._loop.woken, until)
            if not moves:
                # A manual clock that nothing advances: the remaining time will not pass.
                return

    def release_when_quiet(self, right: DispatchRight) -> None:
        """Release the right to dispatch once no code of an attempt is at work."""
        # A shutdown that was itself cancelled leaves attempts open.
        self._give_up()
        if self._attempts.lingering:
            right.linger()
        self._attempts.when_quiet(right.release)
