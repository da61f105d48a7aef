"""The scheduler for programs without an event loop: scripts, Flask, Qt.

This ``Scheduler`` runs the asynchronous one on a background thread and waits for its results; there is no second
implementation. Its methods block and return what the asynchronous methods return, except that handles block as well
and events are an ordinary iterator.
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
from taskmill.model.records import HistoryRecord, TaskGraph, TaskRecord, TypeStats
from taskmill.model.settings import RateLimit, Retention
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
        """Return the handler's value, or raise ``TaskFailed``."""
        return self._scheduler.call(self._handle.result(timeout))

    def wait(self, timeout: Duration | None = None) -> HistoryRecord:
        """Wait until the task has ended, and return its record."""
        return self._scheduler.call(self._handle.wait(timeout))

    def cancel(self) -> bool:
        """Cancel the task; return ``False`` if it had already ended."""
        return self._scheduler.call(self._handle.cancel())

    def record(self) -> TaskRecord | HistoryRecord:
        """Return the current record of the task."""
        return self._scheduler.call(self._handle.record())

    def explain(self) -> Explanation:
        """Explain why the task waits."""
        return self._scheduler.call(self._handle.explain())


class GroupControl:
    """The controls of one group, for code that may block."""

    def __init__(self, control: AsyncGroupControl, scheduler: Scheduler) -> None:
        self._control = control
        self._scheduler = scheduler
        self.name = control.name

    def pause(self, until: datetime | None = None, duration: Duration | None = None) -> None:
        """Start no more tasks of the group until it is resumed or the pause ends."""
        self._scheduler.call(self._control.pause(until, duration))

    def resume(self) -> None:
        """End the pause."""
        self._scheduler.call(self._control.resume())

    def set(
        self,
        *,
        weight: float | UnsetType = UNSET,
        cap: int | UnsetType | None = UNSET,
        min_slots: int | UnsetType = UNSET,
        rate: RateLimit | UnsetType | None = UNSET,
    ) -> None:
        """Change the given settings; ``None`` for ``cap`` or ``rate`` removes that limit."""
        self._scheduler.call(self._control.set(weight=weight, cap=cap, min_slots=min_slots, rate=rate))


class DomainControl:
    """The controls of one domain, for code that may block."""

    def __init__(self, control: AsyncDomainControl, scheduler: Scheduler) -> None:
        self._control = control
        self._scheduler = scheduler
        self.name = control.name

    def pause(self) -> None:
        """Start no more tasks of the domain until it is resumed."""
        self._scheduler.call(self._control.pause())

    def resume(self) -> None:
        """End the pause."""
        self._scheduler.call(self._control.resume())

    def set_max_concurrency(self, n: int | None) -> None:
        """Set how many tasks of the domain may run at once; ``None`` removes the limit."""
        self._scheduler.call(self._control.set_max_concurrency(n))


class Scheduler:
    """A blocking scheduler: ``with Scheduler("tasks.db", domains=[...]) as scheduler:``.

    It takes the settings of the asynchronous one. Its methods may be called from any thread except that of its own
    event loop.
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
            # Pending calls from other threads fail with an error.
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
            raise InvalidState(
                "a blocking call on the scheduler's own event loop would wait forever: in async handlers, await the "
                "methods of the asynchronous scheduler instead"
            )
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        except CancelledError:
            raise InvalidState("the scheduler was closed while this call waited") from None

    def run(self, *, standby: bool = False) -> None:
        """Dispatch until :meth:`stop` is called from another thread."""
        self.call(self._scheduler.run(standby=standby))

    def run_until_idle(self, timeout: Duration | None = None) -> None:
        """Dispatch until no task runs and none can start now."""
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
        """True if this scheduler dispatches tasks now."""
        return self._scheduler.is_dispatching

    def wait(self, id: int, timeout: Duration | None = None) -> HistoryRecord:
        """Wait until a task has ended, in this process or another."""
        return self.call(self._scheduler.wait(id, timeout))

    def facts(self, *, integrity: bool = False) -> Mapping[str, Any]:
        """Return what ``taskmill doctor`` shows about the store; ``integrity`` checks every page of a file."""
        return self.call(self._scheduler.facts(integrity=integrity))

    def get(self, id: int) -> TaskRecord | HistoryRecord:
        """Return the task with this id, active or ended."""
        return self.call(self._scheduler.get(id))

    def find(self, type: str, key: str) -> TaskRecord | HistoryRecord | None:
        """Return the active task with this key, else the last one that ended, else ``None``."""
        return self.call(self._scheduler.find(type, key))

    def tasks(self, **filters: Unpack[FilterOptions]) -> list[TaskRecord]:
        """Return active tasks, oldest first."""
        return self.call(self._scheduler.tasks(**filters))

    def history(self, **filters: Unpack[FilterOptions]) -> list[HistoryRecord]:
        """Return ended tasks, newest first."""
        return self.call(self._scheduler.history(**filters))

    def count(self, **filters: Unpack[FilterOptions]) -> int:
        """Count the tasks that match."""
        return self.call(self._scheduler.count(**filters))

    def stats(self, type: str) -> TypeStats:
        """Return statistics of a task type over all its ended tasks."""
        return self.call(self._scheduler.stats(type))

    def tag_values(self, key: str) -> dict[str, int]:
        """Return each value of a tag among active tasks with its count, most frequent first."""
        return self.call(self._scheduler.tag_values(key))

    def dead_letters(self, **filters: Unpack[FilterOptions]) -> list[HistoryRecord]:
        """Return dead letters, newest first."""
        return self.call(self._scheduler.dead_letters(**filters))

    def snapshot(self) -> Snapshot:
        """Return a snapshot of running and waiting tasks, groups, pauses, rates, pressure, schedules and nodes."""
        return self.call(self._scheduler.snapshot())

    def graph(self, id: int) -> TaskGraph:
        """Return the tasks connected to a task: parents, children, dependencies and dependents."""
        return self.call(self._scheduler.graph(id))

    def events(self, *kinds: type[Event], domain: str | None = None, type: str | None = None) -> Iterator[Event]:
        """Return an iterator of the events from now on; it blocks until the next event."""
        listener = self.call(_called(lambda: self._scheduler.events(*kinds, domain=domain, type=type)))

        def follow() -> Iterator[Event]:
            while True:
                try:
                    yield self.call(listener.__anext__())
                except StopAsyncIteration:
                    return

        return follow()

    def cancel(self, id: int) -> bool:
        """Cancel a task; return ``False`` if it had already ended."""
        return self.call(self._scheduler.cancel(id))

    def cancel_where(self, **filters: Unpack[FilterOptions]) -> list[int]:
        """Cancel every active task that matches and return their ids."""
        return self.call(self._scheduler.cancel_where(**filters))

    def retry_dead(self, id: int) -> Handle[Any]:
        """Return a dead letter to the queue under its own id, with a fresh retry counter."""
        return Handle(self.call(self._scheduler.retry_dead(id)), self)

    def pause_recurring(self, id: int) -> None:
        """Pause the recurring series that task ``id`` belongs to."""
        self.call(self._scheduler.pause_recurring(id))

    def resume_recurring(self, id: int) -> None:
        """Resume a paused series with its next occurrence."""
        self.call(self._scheduler.resume_recurring(id))

    def cancel_recurring(self, id: int) -> None:
        """End a recurring series and cancel its current occurrence."""
        self.call(self._scheduler.cancel_recurring(id))

    def explain(self, id: int) -> Explanation:
        """Explain why a task waits."""
        return self.call(self._scheduler.explain(id))

    def max_wait(self, priority: int) -> timedelta | None:
        """Return the longest wait until a task gets the next free slot; ``None`` (no bound) without aging."""
        return self._scheduler.max_wait(priority)

    def set_priority(self, id: int, priority: int) -> None:
        """Change the priority of an active task."""
        self.call(self._scheduler.set_priority(id, priority))

    def pause(self) -> None:
        """Start no more tasks until :meth:`resume`; running tasks continue."""
        self.call(self._scheduler.pause())

    def resume(self) -> None:
        """End :meth:`pause`."""
        self.call(self._scheduler.resume())

    def group(self, name: str | None) -> GroupControl:
        """Return the controls of a group; ``None`` means the ungrouped tasks."""
        return GroupControl(self._scheduler.group(name), self)

    def domain(self, name: str) -> DomainControl:
        """Return the controls of a domain."""
        return DomainControl(self._scheduler.domain(name), self)

    def reset_group_weights(self) -> None:
        """Give every group the default weight."""
        self.call(self._scheduler.reset_group_weights())

    def set_rate_limit(self, type: str, rate: RateLimit | None) -> None:
        """Limit how often tasks of a type start; ``None`` removes the limit."""
        self.call(self._scheduler.set_rate_limit(type, rate))

    def set_max_concurrency(self, n: int) -> None:
        """Set how many tasks may run at once; running tasks are not interrupted."""
        self.call(self._scheduler.set_max_concurrency(n))

    def prune(self, retention: Retention | None = None) -> int:
        """Prune history now, by ``retention`` or by the scheduler's; return the number of deleted rows."""
        return self.call(self._scheduler.prune(retention))


async def _entered(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aenter__()


async def _exited(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aexit__(None, None, None)


async def _called(function: Callable[[], R]) -> R:
    return function()
