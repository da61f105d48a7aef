"""The end of a dispatcher: claim no more, let handlers finish, stop them, return what does not end. Bounded."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from taskmill.model.outcome import StopReason
from taskmill.ports import Clock, DispatchRight, Store
from taskmill.runtime.attempt import Attempt
from taskmill.runtime.dispatcher import Dispatcher
from taskmill.runtime.patience import wait_unless_still


class Closing:
    """Ends one dispatcher."""

    def __init__(self, dispatcher: Dispatcher, store: Store, clock: Clock) -> None:
        self._dispatcher = dispatcher
        self._workshop = dispatcher.workshop
        self._store = store
        self._clock = clock
        self._quiet_by = math.inf

    async def shut_down(self, grace: float) -> None:
        """Stop claiming, let handlers finish for ``grace``, then stop them; what does not end is returned."""
        self._dispatcher.claim_no_more()
        await self._run_until_quiet(grace, lambda _: True)
        self._dispatcher.cron.note_cut_short(self._workshop.attempts.values())
        for id in list(self._workshop.attempts):
            self._workshop.stop(id, StopReason.SHUTDOWN)
        patience = 1.0 if math.isinf(grace) else max(grace, 1.0)
        await self._run_until_quiet(patience, lambda attempt: attempt.task.cron is None or attempt.hears_stop)
        self._workshop.interrupt_for_shutdown()
        if not self._store.is_cluster:
            # Nobody begins it while this process has the right to dispatch.
            self._workshop.return_unwilling(lingering=True)
        await self._dispatcher.commit_outcomes()

    async def settle(self) -> None:
        """What :meth:`shut_down` has given up, and has ended since, returns to the queue; others begin it at once."""
        for _ in range(5):
            # Handlers and hooks on the loop end by being cancelled, in a few steps.
            await asyncio.sleep(0)
        if self._workshop.return_unwilling(lingering=False):
            await self._dispatcher.commit_outcomes()

    def hurry(self, grace: float) -> None:
        """Wait no longer than this for handlers to finish."""
        self._quiet_by = min(self._quiet_by, self._clock.monotonic() + grace)
        self._dispatcher.wake()

    async def _run_until_quiet(self, longest: float, waits_for: Callable[[Attempt], bool]) -> None:
        self._quiet_by = self._clock.monotonic() + longest
        while self._dispatcher.has_outcomes or any(map(waits_for, self._workshop.attempts.values())):
            began = self._clock.monotonic()
            if began >= self._quiet_by:
                return
            committed = await self._dispatcher.commit_turn()
            until = min(self._quiet_by, self._workshop.next_deadline() or math.inf)
            if committed is not None:
                moves = committed or self._clock.monotonic() > began
            elif math.isinf(until):
                await self._clock.wait(self._dispatcher.woken, None)
                moves = True
            else:
                moves = await wait_unless_still(self._clock, self._dispatcher.woken, until)
            if not moves:
                # A manual clock that nothing moves any more: the time that is left will not pass.
                return

    def release_when_quiet(self, right: DispatchRight) -> None:
        """Give up the right to dispatch, but not while a handler that cannot be stopped is still at work."""
        # Whatever a shutdown that was itself cancelled has left at work.
        self._workshop.interrupt_for_shutdown()
        if self._workshop.lingering:
            right.linger()
        self._workshop.when_quiet(right.release)
