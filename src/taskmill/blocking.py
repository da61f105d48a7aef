"""The same scheduler for programs without an event loop: scripts, Flask, Qt.

``Scheduler`` here runs the asynchronous one on a background thread and waits for its answers; there is no second
implementation. Its verbs block and return what the asynchronous verbs return, except that handles block, too, and
events are an ordinary iterator.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

from msgspec import UNSET, UnsetType

from taskmill.errors import InvalidState
from taskmill.handle import Handle as AsyncHandle
from taskmill.model.durations import Duration
from taskmill.model.events import Event
from taskmill.model.explanation import Explanation
from taskmill.model.filters import FilterOptions
from taskmill.model.graph import TaskGraph
from taskmill.model.rate_limit import RateLimit
from taskmill.model.records import HistoryRecord, TaskRecord, TypeStats
from taskmill.model.retention import Retention
from taskmill.model.snapshot import Snapshot
from taskmill.model.submission import Submission
from taskmill.scheduler import Scheduler as AsyncScheduler
from taskmill.verbs.tuning import DomainControl as AsyncDomainControl
from taskmill.verbs.tuning import GroupControl as AsyncGroupControl

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

__all__ = ["Handle", "Scheduler"]


async def _cancel_the_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Handle(Generic[R_co]):
    """A submitted task, for code that may block."""

    def __init__(self, handle: AsyncHandle[R_co], scheduler: Scheduler) -> None:
        self._handle = handle
        self._scheduler = scheduler
        self.id = handle.id
        self.kind = handle.kind
        self.replaced_id = handle.replaced_id

    def __repr__(self) -> str:
        return repr(self._handle)

    def result(self, timeout: Duration | None = None) -> R_co:
        """The handler's value, or ``TaskFailed``."""
        return self._scheduler.call(self._handle.result(timeout))

    def wait(self, timeout: Duration | None = None) -> HistoryRecord:
        """Wait until the task has ended, however it did."""
        return self._scheduler.call(self._handle.wait(timeout))

    def cancel(self) -> bool:
        """Cancel the task; ``False`` if it had ended already."""
        return self._scheduler.call(self._handle.cancel())

    def record(self) -> TaskRecord | HistoryRecord:
        """The task as it is now."""
        return self._scheduler.call(self._handle.record())

    def explain(self) -> Explanation:
        """Why the task waits."""
        return self._scheduler.call(self._handle.explain())


class GroupControl:
    """One group of a scheduler, for code that may block."""

    def __init__(self, control: AsyncGroupControl, scheduler: Scheduler) -> None:
        self._control = control
        self._scheduler = scheduler
        self.name = control.name

    def pause(self, until: datetime | None = None, duration: Duration | None = None) -> None:
        """Start nothing more of the group, until it is resumed or the time has come."""
        self._scheduler.call(self._control.pause(until, duration))

    def resume(self) -> None:
        """Go on."""
        self._scheduler.call(self._control.resume())

    def set(
        self,
        *,
        weight: float | UnsetType = UNSET,
        cap: int | UnsetType | None = UNSET,
        min_slots: int | UnsetType = UNSET,
        rate: RateLimit | UnsetType | None = UNSET,
    ) -> None:
        """Change what is given; ``None`` for ``cap`` or ``rate`` lifts it."""
        self._scheduler.call(self._control.set(weight=weight, cap=cap, min_slots=min_slots, rate=rate))


class DomainControl:
    """One domain of a scheduler, for code that may block."""

    def __init__(self, control: AsyncDomainControl, scheduler: Scheduler) -> None:
        self._control = control
        self._scheduler = scheduler
        self.name = control.name

    def pause(self) -> None:
        """Start nothing more of the domain until it is resumed."""
        self._scheduler.call(self._control.pause())

    def resume(self) -> None:
        """Go on."""
        self._scheduler.call(self._control.resume())

    def set_max_concurrency(self, n: int | None) -> None:
        """How many tasks of the domain may run at once; ``None``: as many as there are slots."""
        self._scheduler.call(self._control.set_max_concurrency(n))


class Scheduler:
    """``with Scheduler("tasks.db", domains=[...]) as scheduler:`` takes the same settings as the asynchronous one.

    Its verbs may be called from any thread except those of its own handlers' event loop.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._scheduler = AsyncScheduler(*args, **kwargs)
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="taskmill-blocking", daemon=True)
        self._thread.start()
        try:
            self.call(self._scheduler.open())
        except BaseException:
            self._end_loop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.call(self._scheduler.close())
        finally:
            self._end_loop()

    def _end_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            # Calls of other threads that still wait are answered with an error.
            asyncio.run_coroutine_threadsafe(_cancel_the_others(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()

    def call(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine of the asynchronous scheduler on the background loop and wait for its result."""
        if self._loop is None:
            coroutine.close()
            raise InvalidState("the scheduler is not open; use `with Scheduler(...)`")
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise InvalidState("this would wait for itself: await the asynchronous verbs in handlers instead")
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        except CancelledError:
            raise InvalidState("the scheduler was closed while this call waited") from None

    def run(self, *, standby: bool = False) -> None:
        """Dispatch until :meth:`stop` is called from another thread."""
        self.call(self._scheduler.run(standby=standby))

    def run_until_idle(self, timeout: Duration | None = None) -> None:
        """Dispatch until nothing runs and nothing may run now."""
        self.call(self._scheduler.run_until_idle(timeout))

    @contextmanager
    def running(self) -> Generator[Self, None, None]:
        """Dispatch in the background for the duration of a ``with`` block."""
        manager = self._scheduler.running()
        self.call(_entered(manager))
        try:
            yield self
        finally:
            self.call(_exited(manager))

    def stop(self, grace: Duration | None = None) -> None:
        """Stop dispatching."""
        self.call(self._scheduler.stop(grace))

    def submit(self, submission: Submission, *, connection: object = None) -> Handle[Any]:
        """Store one task. ``connection`` is used in the calling thread."""
        return self.submit_many([submission], connection=connection)[0]

    def submit_many(self, submissions: Iterable[Submission], *, connection: object = None) -> list[Handle[Any]]:
        """Store many tasks in one transaction."""
        given = list(submissions)
        if connection is None:
            handles = self.call(self._scheduler.submit_many(given))
        else:
            # An sqlite3 connection belongs to the thread that opened it.
            prepared = self.call(self._scheduler.resolve(given))
            handles = self._scheduler.submit_through(connection, prepared)
        return [Handle(handle, self) for handle in handles]

    @property
    def is_dispatching(self) -> bool:
        """Whether this scheduler runs tasks now."""
        return self._scheduler.is_dispatching

    def wait(self, id: int, timeout: Duration | None = None) -> HistoryRecord:
        """Wait until a task has ended, in this process or another."""
        return self.call(self._scheduler.wait(id, timeout))

    def facts(self, *, integrity: bool = False) -> Mapping[str, Any]:
        """Return what ``taskmill doctor`` shows about the store; ``integrity`` checks every page of a file."""
        return self.call(self._scheduler.facts(integrity=integrity))

    def get(self, id: int) -> TaskRecord | HistoryRecord:
        """The task with this id, active or ended."""
        return self.call(self._scheduler.get(id))

    def find(self, type: str, key: str) -> TaskRecord | HistoryRecord | None:
        """The active task with this key, else the last that ended, else ``None``."""
        return self.call(self._scheduler.find(type, key))

    def tasks(self, **filters: Unpack[FilterOptions]) -> list[TaskRecord]:
        """Active tasks, oldest first."""
        return self.call(self._scheduler.tasks(**filters))

    def history(self, **filters: Unpack[FilterOptions]) -> list[HistoryRecord]:
        """Ended tasks, newest first."""
        return self.call(self._scheduler.history(**filters))

    def count(self, **filters: Unpack[FilterOptions]) -> int:
        """How many tasks match."""
        return self.call(self._scheduler.count(**filters))

    def stats(self, type: str) -> TypeStats:
        """What is known about a task type."""
        return self.call(self._scheduler.stats(type))

    def tag_values(self, key: str) -> dict[str, int]:
        """Each value of a tag among active tasks and how many have it."""
        return self.call(self._scheduler.tag_values(key))

    def dead_letters(self, **filters: Unpack[FilterOptions]) -> list[HistoryRecord]:
        """Tasks that ended as dead letters."""
        return self.call(self._scheduler.dead_letters(**filters))

    def snapshot(self) -> Snapshot:
        """A picture of what runs and what waits."""
        return self.call(self._scheduler.snapshot())

    def graph(self, id: int) -> TaskGraph:
        """Everything that is tied to a task."""
        return self.call(self._scheduler.graph(id))

    def events(self, *kinds: type[Event], domain: str | None = None, type: str | None = None) -> Iterator[Event]:
        """Listen from now on; iterating blocks until the next event."""
        listener = self.call(_called(lambda: self._scheduler.events(*kinds, domain=domain, type=type)))

        def follow() -> Iterator[Event]:
            while True:
                try:
                    yield self.call(listener.__anext__())
                except StopAsyncIteration:
                    return

        return follow()

    def cancel(self, id: int) -> bool:
        """Cancel a task; ``False`` if it had ended already."""
        return self.call(self._scheduler.cancel(id))

    def cancel_where(self, **filters: Unpack[FilterOptions]) -> list[int]:
        """Cancel every active task that matches."""
        return self.call(self._scheduler.cancel_where(**filters))

    def retry_dead(self, id: int) -> Handle[Any]:
        """Bring a dead letter back to the queue."""
        return Handle(self.call(self._scheduler.retry_dead(id)), self)

    def pause_recurring(self, id: int) -> None:
        """Pause a recurring series, named by any task of it."""
        self.call(self._scheduler.pause_recurring(id))

    def resume_recurring(self, id: int) -> None:
        """Go on with the next occurrence of a paused series."""
        self.call(self._scheduler.resume_recurring(id))

    def cancel_recurring(self, id: int) -> None:
        """End a recurring series; its present occurrence is cancelled."""
        self.call(self._scheduler.cancel_recurring(id))

    def explain(self, id: int) -> Explanation:
        """Why a task waits."""
        return self.call(self._scheduler.explain(id))

    def max_wait(self, priority: int) -> timedelta | None:
        """How long a task waits at most until it takes the next free slot."""
        return self._scheduler.max_wait(priority)

    def set_priority(self, id: int, priority: int) -> None:
        """Give an active task another priority."""
        self.call(self._scheduler.set_priority(id, priority))

    def pause(self) -> None:
        """Start nothing more until :meth:`resume`."""
        self.call(self._scheduler.pause())

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        self.call(self._scheduler.resume())

    def group(self, name: str | None) -> GroupControl:
        """Verbs for one group."""
        return GroupControl(self._scheduler.group(name), self)

    def domain(self, name: str) -> DomainControl:
        """Verbs for all task types of a domain."""
        return DomainControl(self._scheduler.domain(name), self)

    def reset_group_weights(self) -> None:
        """Give every group the default weight."""
        self.call(self._scheduler.reset_group_weights())

    def set_rate_limit(self, type: str, rate: RateLimit | None) -> None:
        """Limit how often tasks of a type start."""
        self.call(self._scheduler.set_rate_limit(type, rate))

    def set_max_concurrency(self, n: int) -> None:
        """How many tasks may run at once, from now on."""
        self.call(self._scheduler.set_max_concurrency(n))

    def prune(self, retention: Retention | None = None) -> int:
        """Apply retention now."""
        return self.call(self._scheduler.prune(retention))


async def _entered(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aenter__()


async def _exited(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aexit__(None, None, None)


async def _called(function: Callable[[], R]) -> R:
    return function()
