"""The working life of a scheduler: take the right to dispatch, recover, run the loop, shut down, give it back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from taskmill.core.ports import Clock, DispatchRight, Store
from taskmill.define.registry import Registry
from taskmill.errors import AlreadyRunning, InvalidState, StoreLost
from taskmill.model.attempt import StopReason
from taskmill.observe.log import logger
from taskmill.runtime.announcer import Announcer
from taskmill.runtime.attempt import Spawner
from taskmill.runtime.closing import Closing
from taskmill.runtime.commits import Commits
from taskmill.runtime.executors import Executors
from taskmill.runtime.loop import DispatchLoop
from taskmill.runtime.machine_watch import MachineWatch, MakeWatch, leave_unwatched
from taskmill.runtime.neighbours import Neighbours
from taskmill.runtime.settings import RunSettings
from taskmill.runtime.upkeep import Upkeep

STANDBY_INTERVAL = 1.0

Done = Callable[[DispatchLoop], bool]
MakeExecutors = Callable[[DispatchRight], Executors]


class DispatchSession:
    """Runs at most one dispatcher at a time."""

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
        """Who watches the machine while a dispatcher is at work, if anybody does."""
        self._stopping: asyncio.Event | None = None
        self._stopped = asyncio.Event()
        self._grace: float | None = None
        self.loop: DispatchLoop | None = None
        """The one at work, if any."""
        self._closing: Closing | None = None
        """How it ends."""

    @property
    def is_running(self) -> bool:
        return self._stopping is not None

    async def run(
        self,
        done: Done,
        *,
        standby: bool = False,
        started: asyncio.Event | None = None,
        may_go: asyncio.Event | None = None,
        wake_at: float | None = None,
    ) -> None:
        """Dispatch until ``done`` says so or :meth:`stop` is called.

        ``started`` is set when everything is ready, and then ``may_go`` is waited for before anything starts.
        """
        if self._stopping is not None:
            raise InvalidState("this scheduler is dispatching already")
        stopping = self._stopping = asyncio.Event()
        self._stopped.clear()
        self._grace = None
        try:
            right = await self._acquire(stopping, standby)
            if right is not None:
                await self._run_with(right, done, stopping, started, may_go, wake_at)
        finally:
            self._stopping = None
            self._stopped.set()

    async def stop(self, grace: float | None) -> None:
        """Make :meth:`run` end, and wait until it has."""
        if self._stopping is not None:
            self.ask_to_stop(grace)
            await self._stopped.wait()

    def ask_to_stop(self, grace: float | None) -> None:
        """Asked again, the shorter grace counts."""
        if self._stopping is None:
            return
        if self._stopping.is_set() and self._closing is not None and grace is not None:
            self._closing.hurry(grace)
        self._grace = grace
        self._stopping.set()
        if self.loop is not None:
            self.loop.wake()

    async def _acquire(self, stopping: asyncio.Event, standby: bool) -> DispatchRight | None:
        while not stopping.is_set():
            try:
                return await self._store.acquire_dispatch()
            except AlreadyRunning:
                if not standby:
                    raise
            await self._clock.wait(stopping, self._clock.monotonic() + STANDBY_INTERVAL)
        return None

    async def _run_with(
        self,
        right: DispatchRight,
        done: Done,
        stopping: asyncio.Event,
        started: asyncio.Event | None,
        may_go: asyncio.Event | None,
        wake_at: float | None,
    ) -> None:
        # Whatever fails from here on, the right is given back: the steps are undone in reverse order, each of them
        # even if undoing another one fails.
        async with contextlib.AsyncExitStack() as leaving:
            closing: Closing | None = None
            leaving.callback(lambda: right.release() if closing is None else closing.release_when_quiet(right))
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
            leaving.callback(self._commits.leave, loop.follow)
            closing = Closing(loop, self._store, self._clock)
            leaving.push_async_callback(closing.settle)
            leaving.push_async_callback(executors.close)
            leaving.push_async_callback(self._stop_watching)
            leaving.callback(self._left)
            await loop.setting_aside.despite_damage(self._recover)
            await loop.setting_aside.despite_damage(loop.cron.begin)
            await self._store.declare(self._settings.declared)
            await self._watch_machine(loop)
            self.loop, self._closing = loop, closing
            self._store.watch_cut_off = lambda: _stop_what_runs(loop)
            lost: list[StoreLost] = []

            def lose(wrong: StoreLost) -> None:
                if not lost:
                    logger.error("dispatching stops: %s", wrong)
                lost.append(wrong)
                loop.wake()

            def is_done() -> bool:
                if lost:
                    raise lost[0]
                return stopping.is_set() or done(loop)

            self._neighbours.changed, self._neighbours.lost = loop.look_again, lose
            self._neighbours.look_at_clock = loop.look_at_clock
            self._neighbours.watch()
            if started is not None:
                started.set()
            if may_go is not None:
                await may_go.wait()
            try:
                await loop.run(is_done)
            finally:
                grace = self._settings.shutdown_grace if self._grace is None else self._grace
                await closing.shut_down(grace)
                await upkeep.settle()
                await self._store.durable()

    def _left(self) -> None:
        self._neighbours.changed = self._neighbours.lost = None
        self._neighbours.look_at_clock = lambda: None
        self.loop = self._closing = None

    async def _stop_watching(self) -> None:
        watch, self.machine_watch = self.machine_watch, None
        if watch is not None:
            await watch.end()

    async def _watch_machine(self, loop: DispatchLoop) -> None:
        if self._make_watch is None:
            await leave_unwatched(self._store)
            return
        self.machine_watch = MachineWatch(self._store, self._clock, self._make_watch, loop.load.io, loop.backpressure)
        await self.machine_watch.begin(loop.machine_changed)

    async def _recover(self) -> None:
        now = self._clock.now_ms()
        recovery = await self._store.recover(now)
        if recovery.returned:
            logger.warning("%d tasks of a dead dispatcher return to the queue", recovery.returned)
        self._commits.publish(recovery.commit, now, durable=True)


def _stop_what_runs(loop: DispatchLoop) -> None:
    """Others are about to run it: at most one attempt of a task is alive."""
    for id in list(loop.attempts.open):
        loop.attempts.stop(id, StopReason.CUT_OFF)
    loop.wake()
