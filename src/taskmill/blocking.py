"""The scheduler for programs without an event loop: scripts, Flask, Qt.

This ``Scheduler`` runs the asynchronous one on a background thread and waits for its results; there is no second
implementation. Its methods block and return what the asynchronous methods return, except that handles block as well
and events are an ordinary iterator.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from contextvars import Token
from datetime import datetime, timedelta
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from taskmill.define.domain import Domain, SubmitsTasks, current_scheduler
from taskmill.define.settings import SchedulerSettings
from taskmill.errors import InvalidState, StoreError
from taskmill.model.arguments import check_methods
from taskmill.model.durations import Duration
from taskmill.model.events import Event
from taskmill.model.explanation import Explanation
from taskmill.model.filters import FilterOptions
from taskmill.model.published import PublishedType
from taskmill.model.records import ErrorGroup, HistoryRecord, TaskGraph, TaskRecord, TypeStats
from taskmill.model.settings import RateLimit, Retention
from taskmill.model.snapshot import Snapshot
from taskmill.model.submission import Submission, checked_submissions
from taskmill.scheduler import Scheduler as AsyncScheduler
from taskmill.verbs.blocking import DomainControl, Events, GroupControl, Handle, LoopCaller
from taskmill.verbs.blocking_browsing import BlockingBrowseMethods

if TYPE_CHECKING:
    from taskmill.model.looking_ahead import Projection
    from taskmill.model.settings import RetentionLimits
    from taskmill.store.opening import AnyStore

R = TypeVar("R")
E = TypeVar("E", bound=Event)

__all__ = ["DomainControl", "GroupControl", "Handle", "Scheduler"]


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run an event loop until it is stopped, then close it. All of this needs a thread without a running loop."""
    try:
        loop.run_forever()
        # Calls of other threads that are still pending, or were made just now, fail with an error.
        loop.run_until_complete(_cancel_the_others())
    finally:
        loop.close()


async def _cancel_the_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@check_methods
class Scheduler(BlockingBrowseMethods):
    """A blocking scheduler: ``with Scheduler("tasks.db", domains=[...]) as scheduler:``.

    It takes the settings of the asynchronous one. Its methods may be called from any thread except that of its own
    event loop.
    """

    __signature__ = inspect.signature(AsyncScheduler)

    def __init__(
        self, store: str | PathLike[str] | AnyStore = ":memory:", **settings: Unpack[SchedulerSettings]
    ) -> None:
        self._scheduler = AsyncScheduler(store, **settings)
        self._opening = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._caller: LoopCaller | None = None
        self._context_token: Token[SubmitsTasks | None] | None = None

    def __repr__(self) -> str:
        return repr(self._scheduler)

    def __enter__(self) -> Self:
        self.open()
        self._context_token = current_scheduler.set(self._scheduler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._context_token is not None:
            # A scheduler closed in another context than it was opened in (a fixture) has nothing to restore.
            with suppress(ValueError):
                current_scheduler.reset(self._context_token)
        self.close()

    def open(self) -> None:
        """Start the background thread and open the store. ``with`` does this and ends with :meth:`close`."""
        if self._caller is not None:
            self._caller.check_process()
        with self._opening:
            if self._caller is not None:
                raise InvalidState("this scheduler is already open")
            loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_run, args=(loop,), name="taskmill-blocking", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as wrong:
                loop.close()
                raise StoreError(f"no thread could be started for the scheduler: {wrong}") from wrong
            self._loop, self._caller = loop, LoopCaller(loop, self._thread.ident or 0)
            try:
                self.call(self._scheduler.open())
            except BaseException:
                self._end_loop()
                raise

    def close(self) -> None:
        """Stop dispatching, close the store and end the background thread; do nothing if it is not open."""
        if self._caller is not None and self._caller.is_forked:
            # Everything that is open, and the thread of the loop, belong to the parent process. This scheduler stays
            # unusable: its store cannot be opened a second time beside what was inherited.
            return
        if self._caller is not None:
            self._caller.check_thread("close the scheduler from another thread")
        with self._opening:
            if self._loop is None:
                return
            try:
                self.call(self._scheduler.close())
            finally:
                self._end_loop()

    def _end_loop(self) -> None:
        loop, self._loop, self._caller = self._loop, None, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()

    @asynccontextmanager
    async def on_running_loop(self) -> AsyncGenerator[AsyncScheduler, None]:
        """Open on the running event loop instead of a background thread, as ``taskmill run`` does.

        Yield the asynchronous scheduler. Blocking calls from other threads, such as ``def`` handlers, work meanwhile.
        """
        async with self._scheduler as scheduler:
            self._caller = LoopCaller(asyncio.get_running_loop(), threading.get_ident())
            try:
                yield scheduler
            finally:
                self._caller = None

    def call(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine of the asynchronous scheduler on its event loop and wait for the result."""
        return self._caller_for(coroutine).call(coroutine)

    def _caller_for(self, coroutine: Coroutine[Any, Any, Any]) -> LoopCaller:
        caller = self._caller
        if caller is None:
            coroutine.close()
            raise InvalidState("the scheduler is not open; use `with Scheduler(...)`, or call open()")
        return caller

    @property
    def shutdown_grace(self) -> timedelta:
        """How long running tasks have to finish after :meth:`stop` is called without ``grace``."""
        return self._scheduler.shutdown_grace

    def run(self, *, standby: bool = False) -> None:
        """Dispatch until :meth:`stop` is called from another thread.

        With ``standby``, first wait until no other process dispatches this store.
        """
        self.call(self._scheduler.run(standby=standby))

    def run_until_idle(self, timeout: Duration | None = None) -> None:
        """Dispatch until no task runs and none can start now."""
        self.call(self._scheduler.run_until_idle(timeout))

    @contextmanager
    def running(self, *, standby: bool = False) -> Generator[Self, None, None]:
        """Dispatch in the background for the duration of a ``with`` block.

        With ``standby``, the block is entered even while another process dispatches.
        """
        manager = self._scheduler.running(standby=standby)
        self.call(_entered(manager))
        try:
            yield self
        finally:
            self.call(_exited(manager))

    def stop(self, grace: Duration | None = None) -> None:
        """Stop dispatching."""
        self.call(self._scheduler.stop(grace))

    def submit(self, submission: Submission[R], *, connection: object = None) -> Handle[R]:
        """Store one task. ``connection`` is used in the calling thread."""
        return self.submit_many([submission], connection=connection)[0]

    def submit_many(self, submissions: Iterable[Submission[R]], *, connection: object = None) -> list[Handle[R]]:
        """Store many tasks in one transaction."""
        given = checked_submissions(submissions)
        if connection is None:
            handles = self.call(self._scheduler.submit_many(given))
        else:
            # An sqlite3 connection belongs to the thread that opened it.
            prepared = self.call(self._scheduler.resolve(given))
            handles = self._scheduler.submit_through(connection, prepared)
        return [Handle(handle, self) for handle in handles]

    def dry_run(self, submissions: Iterable[Submission]) -> Projection:
        """Return what ``submit_many`` would make of these submissions; store nothing."""
        return self.call(self._scheduler.dry_run(checked_submissions(submissions)))

    def apply(self, changes: Mapping[str, Any]) -> None:
        """Make the changes of :meth:`simulate` durably."""
        self.call(self._scheduler.apply(changes))

    def provide(self, *objects: Any, domain: str | Domain | None = None) -> None:
        """Add objects that handlers get with ``ctx.state(T)``, of one domain or of all, before or after opening."""
        self._scheduler.provide(*objects, domain=domain)

    @property
    def is_dispatching(self) -> bool:
        """True if this scheduler dispatches tasks now."""
        return self._scheduler.is_dispatching

    @property
    def handled_types(self) -> tuple[str, ...]:
        """The names of the task types that have a handler here, sorted."""
        return self._scheduler.handled_types

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

    def error_groups(self, since: datetime | Duration | None = None) -> list[ErrorGroup]:
        """Return the errors of attempts, grouped by task type, exception and location, the latest group first."""
        return self.call(self._scheduler.error_groups(since))

    def task_types(self) -> dict[str, PublishedType]:
        """Return the task types that programs have registered in the store, with their parameters, by name."""
        return self.call(self._scheduler.task_types())

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

    @overload
    def events(
        self, *, domain: str | None = None, type: str | None = None, since: int | None = None
    ) -> Iterator[Event]: ...
    @overload
    def events(
        self, *kinds: type[E], domain: str | None = None, type: str | None = None, since: int | None = None
    ) -> Iterator[E]: ...
    def events(
        self, *kinds: type[Any], domain: str | None = None, type: str | None = None, since: int | None = None
    ) -> Iterator[Any]:
        """Return an iterator of the events from now on; it blocks until the next event, and threads may share it.

        ``since`` is the ``seq`` of an event of this scheduler: the iterator continues after that event.
        """
        listener = self.call(_called(lambda: self._scheduler.events(*kinds, domain=domain, type=type, since=since)))
        return Events(listener, lambda coroutine: self._caller_for(coroutine).begin(coroutine))

    def cancel(self, id: int) -> bool:
        """Cancel a task; return ``False`` if it had already ended."""
        return self.call(self._scheduler.cancel(id))

    def cancel_where(self, **filters: Unpack[FilterOptions]) -> list[int]:
        """Cancel every active task that matches and return their ids."""
        return self.call(self._scheduler.cancel_where(**filters))

    def retry_dead(self, id: int) -> Handle[Any]:
        """Return a dead letter to the queue under its own id, with a fresh retry counter."""
        return Handle(self.call(self._scheduler.retry_dead(id)), self)

    def retry_where(self, **filters: Unpack[FilterOptions]) -> list[int]:
        """Return every dead letter that matches to the queue, and return their ids."""
        return self.call(self._scheduler.retry_where(**filters))

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

    def run_cron(self, name: str) -> Handle[Any]:
        """Fire a cron task once now, beside its schedule, which stays as it is."""
        return Handle(self.call(self._scheduler.run_cron(name)), self)

    def prune(self, retention: Retention | None = None, **limits: Unpack[RetentionLimits]) -> int:
        """Prune history now, by ``retention`` or its fields, or by the scheduler's; return how many rows it deleted."""
        return self.call(self._scheduler.prune(retention, **limits))


async def _entered(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aenter__()


async def _exited(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aexit__(None, None, None)


async def _called(function: Callable[[], R]) -> R:
    return function()
