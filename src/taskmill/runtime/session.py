"""One session of dispatching: take the right to dispatch, recover, run the loop, shut down, release the right.

:meth:`DispatchSession.run` does these steps in order. Whatever fails, the steps taken so far are undone in reverse, so
that the right to dispatch is always released.

:class:`Closing` is the shutdown. It stops claiming, lets handlers finish for the grace period, asks the others to stop,
and then gives up the attempts that do not stop: their tasks return to the queue and run again. Code of an attempt that
was given up may still be running. In a single process the right to dispatch is released only after that code has ended,
so that no task runs twice at once. In a cluster the task itself returns only after its code has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable

from taskmill.core.logs import about, logger
from taskmill.core.ports import Clock, DispatchRight, Store
from taskmill.define.registry import Registry
from taskmill.errors import AlreadyRunning, InvalidState, StoreLost
from taskmill.model.attempt import StopReason
from taskmill.runtime.announcer import Announcer, Commits, to_the_end
from taskmill.runtime.attempt import Attempt, Spawner
from taskmill.runtime.executors import Executors
from taskmill.runtime.loop import DispatchLoop
from taskmill.runtime.machine_watch import MachineWatch, MakeWatch, clear_readings
from taskmill.runtime.neighbours import Neighbours
from taskmill.runtime.settings import RunSettings
from taskmill.runtime.upkeep import Upkeep, wait_unless_still

STANDBY_INTERVAL = 1.0
"""Seconds between two attempts of a standby scheduler to take the right to dispatch."""

Done = Callable[[DispatchLoop], bool]
MakeExecutors = Callable[[DispatchRight], Executors]


class DispatchSession:
    """Runs the dispatch loop of a scheduler, at most one at a time."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        announcer: Announcer,
        commits: Commits,
        neighbours: Neighbours,
        make_executors: MakeExecutors,
        settings: RunSettings,
        spawner: Spawner,
        make_watch: MakeWatch | None = None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._announcer = announcer
        self._commits = commits
        self._neighbours = neighbours
        self._make_executors = make_executors
        self._settings = settings
        self._spawner = spawner
        self._make_watch = make_watch
        self.machine_watch: MachineWatch | None = None
        """Reads the machine while the loop runs; None if nothing is to be read."""
        self._stopping: asyncio.Event | None = None
        self._stopped = asyncio.Event()
        self._grace: float | None = None
        self.loop: DispatchLoop | None = None
        """The running loop, if any."""
        self._closing: Closing | None = None
        """The shutdown of that loop."""

    async def run(
        self,
        done: Done | None = None,
        *,
        standby: bool = False,
        settled: asyncio.Event | None = None,
        may_go: asyncio.Event | None = None,
        wake_at: float | None = None,
    ) -> None:
        """Dispatch until :meth:`stop` is called or ``done`` returns True.

        With ``standby``, wait while another process dispatches; otherwise raise ``AlreadyRunning``. ``settled`` is set
        when this wait begins, or when the loop is ready to run; the loop then waits for ``may_go``.
        """
        if self._stopping is not None:
            raise InvalidState("this scheduler is already dispatching")
        stopping = self._stopping = asyncio.Event()
        self._stopped.clear()
        self._grace = None
        try:
            right = await self._acquire(stopping, standby, settled)
            if right is not None:
                await self._run_with(right, done, stopping, settled, may_go, wake_at)
        finally:
            self._stopping = None
            self._stopped.set()

    async def stop(self, grace: float | None) -> None:
        """Request a stop and wait until :meth:`run` has ended."""
        if self._stopping is not None:
            self.ask_to_stop(grace)
            await self._stopped.wait()

    def ask_to_stop(self, grace: float | None) -> None:
        """Request a stop. A second request, before or during the shutdown, can only shorten the grace period."""
        if self._stopping is None:
            return
        if not self._stopping.is_set():
            self._grace = grace
        elif grace is not None:
            before = self._settings.shutdown_grace if self._grace is None else self._grace
            self._grace = min(before, grace)
            if self._closing is not None:
                self._closing.hurry(grace)
        self._stopping.set()
        if self.loop is not None:
            self.loop.wake()

    async def _acquire(
        self, stopping: asyncio.Event, standby: bool, settled: asyncio.Event | None
    ) -> DispatchRight | None:
        while not stopping.is_set():
            try:
                return await self._store.acquire_dispatch()
            except AlreadyRunning:
                if not standby:
                    raise
            if settled is not None:
                settled.set()
            await self._clock.wait(stopping, self._clock.monotonic() + STANDBY_INTERVAL)
        return None

    async def _run_with(
        self,
        right: DispatchRight,
        done: Done | None,
        stopping: asyncio.Event,
        settled: asyncio.Event | None,
        may_go: asyncio.Event | None,
        wake_at: float | None,
    ) -> None:
        # The steps are undone in reverse order, each of them even if undoing another one fails.
        async with contextlib.AsyncExitStack() as undo:
            closing: Closing | None = None
            undo.callback(lambda: right.release() if closing is None else closing.release_when_quiet(right))
            executors = self._make_executors(right)
            upkeep = Upkeep(self._store, self._clock, self._settings.retention, self._announcer)
            loop = DispatchLoop(
                self._store,
                self._registry,
                self._clock,
                executors,
                self._announcer,
                self._commits,
                upkeep,
                self._settings,
                self._spawner,
                wake_at=wake_at,
            )
            self._commits.join(loop.follow)
            undo.callback(self._commits.leave, loop.follow)
            closing = Closing(loop, self._store, self._clock)
            undo.push_async_callback(closing.settle)
            undo.push_async_callback(executors.close)
            undo.push_async_callback(self._end_machine_watch)
            undo.callback(self._forget_loop)
            await to_the_end(loop.damaged_rows.despite_damage(self._recover))
            await to_the_end(loop.damaged_rows.despite_damage(loop.cron.begin))
            await self._store.declare(self._settings.declared)
            await self._watch_machine(loop)
            self.loop, self._closing = loop, closing
            self._store.watch_cut_off = lambda: _stop_all(loop)
            lost: list[StoreLost] = []

            def lose(wrong: StoreLost) -> None:
                if not lost:
                    logger.error("dispatching stops: %s", wrong)
                lost.append(wrong)
                loop.wake()

            def is_done() -> bool:
                if lost:
                    raise lost[0]
                return stopping.is_set() or (done is not None and done(loop))

            self._neighbours.changed, self._neighbours.lost = loop.changed_elsewhere, lose
            self._neighbours.check_clock = upkeep.check_clock
            self._neighbours.watch()
            if settled is not None:
                settled.set()
            if may_go is not None:
                await may_go.wait()
            try:
                await loop.run(is_done)
            finally:
                grace = self._settings.shutdown_grace if self._grace is None else self._grace
                await closing.shut_down(grace)
                await upkeep.settle()
                await self._store.durable()

    def _forget_loop(self) -> None:
        self._neighbours.changed = self._neighbours.lost = None
        self._neighbours.check_clock = lambda: None
        self.loop = self._closing = None

    async def _end_machine_watch(self) -> None:
        watch, self.machine_watch = self.machine_watch, None
        if watch is not None:
            await watch.end()

    async def _watch_machine(self, loop: DispatchLoop) -> None:
        if self._make_watch is None:
            await clear_readings(self._store)
            return
        self.machine_watch = MachineWatch(self._store, self._clock, self._make_watch, loop.load.io, loop.backpressure)
        await self.machine_watch.begin(loop.machine_changed)

    async def _recover(self) -> None:
        now = self._clock.now_ms()
        recovery = await self._store.recover(now)
        if recovery.returned:
            logger.warning("%d tasks of a dead dispatcher return to the queue", recovery.returned)
        self._commits.publish(recovery.commit, now, durable=True)


def _stop_all(loop: DispatchLoop) -> None:
    """Stop every running attempt, because other nodes are about to run the same tasks."""
    for id in list(loop.attempts.open):
        loop.attempts.stop(id, StopReason.CUT_OFF)
    loop.wake()


class Closing:
    """Ends one loop within a bounded time."""

    def __init__(self, loop: DispatchLoop, store: Store, clock: Clock) -> None:
        self._loop = loop
        self._attempts = loop.attempts
        self._store = store
        self._clock = clock
        self._quiet_by = math.inf
        self._given_up: list[Attempt] = []
        """Attempts that did not stop in time, and whose tasks are still marked as running."""

    async def shut_down(self, grace: float) -> None:
        """Let handlers finish for ``grace`` seconds, then stop the others and give up those that do not stop."""
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
        """Stop waiting for all open attempts: their tasks, and hooks that are running, will run again."""
        for attempt in list(self._attempts.open.values()):
            task = attempt.task
            logger.warning(
                "task %d (%s) did not stop within shutdown_grace; it will run again",
                task.id,
                task.type,
                extra=about(task),
            )
            self._given_up.append(attempt)
            self._attempts.give_up(attempt)

    def _return_given_up(self, *, lingering: bool) -> bool:
        """Return given-up tasks to the queue; return True if there were any.

        Tasks whose code is still running are included only if ``lingering``.
        """
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
        """Commit outcomes until no attempt that ``waits_for`` selects is open, for at most ``longest`` seconds."""
        self._quiet_by = self._clock.monotonic() + longest
        while self._loop.left_to_commit or any(map(waits_for, self._attempts.open.values())):
            began = self._clock.monotonic()
            if began >= self._quiet_by:
                return
            committed = await self._loop.commit_turn()
            until = min(self._quiet_by, self._attempts.deadlines.next_at() or math.inf)
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
        """Release the right to dispatch once no code of an attempt is running."""
        # A shutdown that was itself cancelled leaves attempts open.
        self._give_up()
        if self._attempts.lingering:
            right.linger()
        self._attempts.when_quiet(right.release)
