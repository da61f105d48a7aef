"""Dispatch tasks: until stopped, until idle, or in the background."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator
from datetime import timedelta
from typing import TYPE_CHECKING, Self, cast

from taskmill.define.domain import SubmitsTasks, current_scheduler
from taskmill.errors import TimedOut
from taskmill.model.durations import Duration, milliseconds, optional_milliseconds
from taskmill.verbs.components import Components, checked_flag

if TYPE_CHECKING:
    from taskmill.runtime.loop import DispatchLoop


class RunMethods(Components):
    """Methods that dispatch."""

    @property
    def is_dispatching(self) -> bool:
        """True if this scheduler dispatches tasks now."""
        return self._is_open and not self._is_forked and self._loop is not None

    @property
    def shutdown_grace(self) -> timedelta:
        """How long running tasks have to finish after :meth:`stop` is called without ``grace``."""
        return timedelta(seconds=self._settings.shutdown_grace)

    @property
    def handled_types(self) -> tuple[str, ...]:
        """The names of the task types that have a handler here, sorted."""
        return tuple(sorted(registered.handler.name for registered in self._registry))

    async def run(self, *, standby: bool = False) -> None:
        """Dispatch until :meth:`stop`. With ``standby``, first wait until no other process dispatches this store."""
        self._opened()
        checked_flag(standby, "standby")
        with self._as_current():
            await self._session.run(standby=standby)

    async def run_until_idle(self, timeout: Duration | None = None) -> None:
        """Dispatch until no task runs and none can start now; raise ``TimeoutError`` after ``timeout``."""
        self._opened()
        limit = optional_milliseconds(timeout, "timeout")
        until = None if limit is None else self._clock.monotonic() + limit / 1000
        timed_out = False

        def done(loop: DispatchLoop) -> bool:
            nonlocal timed_out
            if loop.is_idle:
                return True
            timed_out = until is not None and self._clock.monotonic() >= until and loop.has_looked
            return timed_out

        with self._as_current():
            await self._session.run(done, wake_at=until)
        if timed_out:
            # Imported here, because most programs need no text about a timeout.
            from taskmill.policy.wording import span_text

            raise TimedOut(f"not idle after {span_text(limit or 0)}: tasks still run, or can start")

    @contextlib.asynccontextmanager
    async def running(self, *, standby: bool = False) -> AsyncGenerator[Self, None]:
        """Dispatch in the background for the duration of a ``with`` block.

        With ``standby``, the block is entered even while another process dispatches; dispatching starts when that
        process has stopped.
        """
        self._opened()
        checked_flag(standby, "standby")
        settled = asyncio.Event()
        loop = asyncio.get_running_loop()
        with self._as_current():
            running = self._session.run(standby=standby, settled=settled)
            dispatching = loop.create_task(running, name="taskmill-dispatcher")
        starting = loop.create_task(settled.wait())
        try:
            await asyncio.wait([dispatching, starting], return_when=asyncio.FIRST_COMPLETED)
            if dispatching.done():
                await dispatching
            yield self
        finally:
            starting.cancel()
            if not dispatching.done():
                # Otherwise this block has not started, and stop() would end the dispatching that was already there.
                await self.stop()
            await dispatching

    @contextlib.contextmanager
    def _as_current(self) -> Generator[None, None, None]:
        """Make this scheduler the one that handlers running here submit to."""
        token = current_scheduler.set(cast("SubmitsTasks", self))
        try:
            yield
        finally:
            current_scheduler.reset(token)

    async def stop(self, grace: Duration | None = None) -> None:
        """Stop dispatching: let running tasks finish for ``grace``, then interrupt them without using a retry."""
        seconds = None if grace is None else milliseconds(grace, "grace") / 1000
        if self._is_open:
            self._opened()
            await self._session.stop(seconds)
