"""Declarative cron: expressions in strict POSIX syntax, exact across DST changes, and a cron-only scheduler.

``CronScheduler`` wraps an ordinary scheduler, with the same store and one slot per cron task. The declared tasks run
from ``initialize`` to ``stop``; afterwards it can be initialized again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from taskmill.core.clock import SystemClock
from taskmill.core.logs import cron_logger as logger
from taskmill.core.ports import Clock
from taskmill.errors import (
    AlreadyActive,
    ConfigError,
    DuplicateRegistration,
    InvalidCronExpression,
    InvalidRegistration,
    InvalidState,
)
from taskmill.execute.on_loop import LoopRunning
from taskmill.model.arguments import check_settings
from taskmill.model.cron import Cron, CronTuple
from taskmill.model.durations import Duration, optional_milliseconds
from taskmill.policy.cron.expression import CronExpression
from taskmill.scheduler import Scheduler, checked_clock, lasting_store

if TYPE_CHECKING:
    from taskmill.store.opening import AnyStore

__all__ = [
    "AlreadyActive",
    "Cron",
    "CronExpression",
    "CronScheduler",
    "DuplicateRegistration",
    "InvalidCronExpression",
    "InvalidRegistration",
]

Registrations = Sequence[Cron | CronTuple]


@check_settings
class CronScheduler:
    """Runs declared cron tasks, from ``initialize`` with the complete list to ``stop``."""

    def __init__(self, store: str | PathLike[str], clock: Clock | None = None) -> None:
        self._clock = SystemClock() if clock is None else checked_clock(clock)
        self._store = lasting_store(store, self._clock)
        self._life: _Life | None = None

    def __repr__(self) -> str:
        return f"<CronScheduler {self._store.name}: {'stopped' if self._life is None else self._life.state}>"

    async def initialize(self, registrations: Registrations) -> None:
        """Run exactly these tasks until :meth:`stop`; return when they are stored and the scheduler runs.

        Raise ``AlreadyActive`` if it is initialized and not stopped, and ``AlreadyRunning`` if another scheduler
        dispatches the same store. A wrong registration raises before anything is stored.
        """
        if self._life is not None:
            raise AlreadyActive(self._life.state)
        if not isinstance(registrations, list | tuple):
            raise ConfigError(f"registrations must be a list or tuple of Cron, not {type(registrations).__name__}")
        life = self._life = _Life(_Engine(self._store, registrations, self._clock))
        try:
            await life.begin()
        except BaseException:
            self._life = None
            raise
        finally:
            life.begun.set()

    async def stop(self, timeout: Duration | None = None) -> None:
        """Start no more tasks and wait for running ones; after ``timeout`` cancel them.

        Cancelled tasks restart at the next :meth:`initialize`.

        It may be called at any time and repeatedly; the shortest ``timeout`` counts. A handler of this scheduler that
        calls it without a ``timeout`` gets ``InvalidState``, because it would wait for itself.
        """
        limit = optional_milliseconds(timeout, "timeout")
        life = self._life
        if life is None:
            return
        if limit is None and life.is_within_handler():
            raise InvalidState(
                "stop() without a timeout, called from a handler of this scheduler, would wait for that handler: "
                "return from the handler and call stop() from outside, or pass a timeout"
            )
        if life.ending is None:
            life.ending = asyncio.get_running_loop().create_task(self._end(life))
        life.stop(math.inf if limit is None else limit / 1000)
        # The caller may be cancelled; the stop continues.
        await asyncio.shield(life.ending)

    async def _end(self, life: _Life) -> None:
        try:
            await life.end()
        finally:
            if self._life is life:
                self._life = None


class _Life:
    """The lifetime from one ``initialize`` to its ``stop``."""

    def __init__(self, engine: _Engine) -> None:
        self._engine = engine
        self.state: Literal["initializing", "running"] = "initializing"
        self.begun = asyncio.Event()
        """Set when ``initialize`` is over, successful or not."""
        self.ending: asyncio.Task[None] | None = None
        self._grace = math.inf
        self._is_wanted = True
        self._running: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        await self._engine.open()
        started, may_go = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        self._running = loop.create_task(
            self._engine.run_while(lambda: self._is_wanted, started, may_go), name="taskmill-cron-scheduler"
        )
        starting = loop.create_task(started.wait())
        try:
            await asyncio.wait([self._running, starting], return_when=asyncio.FIRST_COMPLETED)
            if self._running.done():
                await self._running
            self.state = "running"
            self._running.add_done_callback(_say_if_it_died)
            # Tasks start only after `initialize` has returned, so that a stop before that finds none started.
            loop.call_soon(may_go.set)
        except BaseException:
            self._is_wanted = False
            may_go.set()
            self._engine.hurry(0)
            await asyncio.wait([self._running])
            self._running = None
            await self._engine.close()
            raise
        finally:
            starting.cancel()

    def is_within_handler(self) -> bool:
        """True if the current asyncio task is a handler that a stop would wait for."""
        return self._engine.is_handler(asyncio.current_task())

    def stop(self, grace: float) -> None:
        self._is_wanted = False
        self._grace = min(self._grace, grace)
        self._engine.hurry(self._grace)

    async def end(self) -> None:
        await self.begun.wait()
        if self._running is None:
            return  # `initialize` has failed and raised its error to its caller
        try:
            await self._running
        finally:
            await self._engine.close()


def _say_if_it_died(running: asyncio.Task[None]) -> None:
    """Log the error now; ``stop`` raises it too, but may be called much later."""
    wrong = None if running.cancelled() else running.exception()
    if wrong is not None:
        logger.critical("the cron scheduler has stopped after an error; call initialize() again", exc_info=wrong)


class _Engine(Scheduler):
    """A scheduler for cron tasks only, with one slot for each."""

    def __init__(self, store: AnyStore, registrations: Registrations, clock: Clock) -> None:
        super().__init__(store, cron=registrations, max_concurrency=max(len(registrations), 1), clock=clock)

    async def run_while(self, is_wanted: Callable[[], bool], started: asyncio.Event, may_go: asyncio.Event) -> None:
        with self._as_current():
            await self._session.run(lambda _: not is_wanted(), settled=started, may_go=may_go)

    def is_handler(self, task: asyncio.Task[Any] | None) -> bool:
        """True if this asyncio task is a running handler."""
        loop = self._session.loop if self._is_open else None
        at_work = [] if loop is None else [attempt.running for attempt in loop.attempts.open.values()]
        return any(isinstance(running, LoopRunning) and running.task is task for running in at_work)

    def hurry(self, grace: float) -> None:
        """Stop within ``grace`` seconds; repeated calls can only shorten the time."""
        if self._is_open:
            self._session.ask_to_stop(grace)
