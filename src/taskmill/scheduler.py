"""``Scheduler``: the composition root, and the verbs users call."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextvars import Token
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from taskmill.clock import SystemClock
from taskmill.define.domain import Domain, Submits, current_scheduler
from taskmill.define.registry import Registry
from taskmill.errors import (
    AlreadyRunning,
    ConfigError,
    InvalidState,
    SubmissionError,
    TaskNotFound,
    UnknownTaskType,
)
from taskmill.execute.in_threads import ThreadExecutor
from taskmill.execute.on_loop import LoopExecutor
from taskmill.execute.work import Executor
from taskmill.handle import Handle
from taskmill.model.durations import Duration, milliseconds, optional_milliseconds
from taskmill.model.events import Event
from taskmill.model.filters import FilterOptions, checked_filters
from taskmill.model.records import HistoryRecord, TaskRecord, TypeStats
from taskmill.model.retention import Retention
from taskmill.model.retry import Retry
from taskmill.model.snapshot import GroupSnapshot, Snapshot
from taskmill.model.stages import NewTask, Stored
from taskmill.model.status import Ending
from taskmill.model.submission import Submission
from taskmill.observe.bus import EventBus, Listener
from taskmill.policy.verdicts import MOST_CRASHES, crash_message
from taskmill.ports import Clock, DispatchRight
from taskmill.runtime.announcer import Announcer
from taskmill.runtime.dispatcher import Dispatcher
from taskmill.runtime.neighbours import Neighbours
from taskmill.runtime.upkeep import PRUNE_BITE, Upkeep
from taskmill.runtime.waiters import Waiters
from taskmill.runtime.workshop import Executors
from taskmill.store.sqlite.ledger import FRONT
from taskmill.store.sqlite.store import open_store

STANDBY_INTERVAL = 1.0


class Scheduler:
    """Durable background work in one file.

    ``async with Scheduler("tasks.db", domains=[...])`` opens it; :meth:`run`, :meth:`run_until_idle` or
    :meth:`running` dispatch. Without dispatching it still submits, reads and controls.
    """

    def __init__(
        self,
        store: str | PathLike[str] = ":memory:",
        *,
        domains: Iterable[Domain] = (),
        max_concurrency: int = 8,
        retry: Retry | None = None,
        default_ttl: Duration | None = None,
        retention: Retention | None = Retention(),  # noqa: B008 - a frozen value
        state: Iterable[Any] = (),
        cancel_timeout: Duration = 30,
        shutdown_grace: Duration = 10,
        durability: Literal["full", "process"] = "full",
        clock: Clock | None = None,
    ) -> None:
        if durability not in ("full", "process"):
            raise ConfigError(f"durability must be 'full' or 'process', got {durability!r}")
        if retention is not None and not isinstance(retention, Retention):
            raise ConfigError(f"retention must be a Retention or None, not {type(retention).__name__}")
        self._max_concurrency = _concurrency(max_concurrency)
        self._cancel_timeout = milliseconds(cancel_timeout, "cancel_timeout") / 1000
        self._shutdown_grace = milliseconds(shutdown_grace, "shutdown_grace") / 1000
        self._retention = retention
        self._clock: Clock = SystemClock() if clock is None else clock
        self._registry = Registry(domains, retry=retry, ttl=default_ttl, state=state)
        self._needs_processes = any(registered.in_process for registered in self._registry)
        if self._needs_processes:
            from taskmill.execute.in_processes import check_importable

            for registered in self._registry:
                if registered.in_process:
                    check_importable(registered.handler.function, registered.handler.name)
        self._store = open_store(store, durability, self._clock)
        self._dispatcher: Dispatcher | None = None
        self._stopping: asyncio.Event | None = None
        self._stop_grace: float | None = None
        self._is_open = False
        self._context_token: Token[Submits | None] | None = None

    def __repr__(self) -> str:
        return f"<Scheduler {self._store.name}>"

    # Opening and closing

    async def __aenter__(self) -> Self:
        await self.open()
        self._context_token = current_scheduler.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._context_token is not None:
            # A context manager closed elsewhere than it was opened (a fixture) has nothing to restore.
            with contextlib.suppress(ValueError):
                current_scheduler.reset(self._context_token)
        await self.close()

    async def open(self) -> None:
        """Create or migrate the store, and recover what a dead dispatcher left running."""
        if self._is_open:
            raise InvalidState("this scheduler is open already")
        await self._store.open()
        try:
            self._waiters = Waiters()
            self._bus = EventBus(self._clock)
            self._announcer = Announcer(self._bus, self._waiters)
            self._neighbours = Neighbours(self._store, self._waiters)
            self._store.watch_added = self._added
            if types := self._registry.published():
                await self._store.publish_types(types)
            with contextlib.suppress(AlreadyRunning):
                right = await self._store.acquire_dispatch()
                try:
                    await self._recover()
                finally:
                    right.release()
        except BaseException:
            await self._store.close()
            raise
        self._is_open = True
        for domain in self._registry.domains:
            domain.bind(self)

    async def close(self) -> None:
        """Stop dispatching and close the store."""
        if not self._is_open:
            return
        await self.stop()
        self._is_open = False
        for domain in self._registry.domains:
            domain.unbind(self)
        await self._neighbours.close()
        self._bus.close()
        await self._store.close()

    async def _recover(self) -> None:
        recovery = await self._store.recover(self._clock.now_ms())
        self._announcer.quarantined(recovery.quarantined, crash_message(MOST_CRASHES))

    def _opened(self) -> None:
        if not self._is_open:
            raise InvalidState("the scheduler is not open; use `async with Scheduler(...)`")

    # Dispatching

    @property
    def is_dispatching(self) -> bool:
        """Whether this scheduler runs tasks now."""
        return self._stopping is not None

    async def run(self, *, standby: bool = False) -> None:
        """Dispatch until :meth:`stop`. With ``standby``, wait for another dispatcher of the file to go first."""
        await self._dispatch(lambda _dispatcher: False, standby=standby)

    async def run_until_idle(self, timeout: Duration | None = None) -> None:
        """Dispatch until nothing runs and nothing may run now. ``TimeoutError`` after ``timeout``."""
        until: float | None = None
        if (limit := optional_milliseconds(timeout, "timeout")) is not None:
            until = self._clock.monotonic() + limit / 1000
        timed_out = False

        def done(dispatcher: Dispatcher) -> bool:
            nonlocal timed_out
            timed_out = until is not None and self._clock.monotonic() >= until
            return dispatcher.is_idle or timed_out

        await self._dispatch(done, wake_at=until)
        if timed_out:
            raise TimeoutError(f"not idle after {timeout}")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Dispatch in the background for the duration of a ``with`` block."""
        started = asyncio.Event()
        dispatching = asyncio.get_running_loop().create_task(
            self._dispatch(lambda _dispatcher: False, started=started), name="taskmill-dispatcher"
        )
        starting = asyncio.get_running_loop().create_task(started.wait())
        try:
            await asyncio.wait([dispatching, starting], return_when=asyncio.FIRST_COMPLETED)
            if dispatching.done():
                await dispatching
            yield self
        finally:
            starting.cancel()
            await self.stop()
            await dispatching

    async def stop(self, grace: Duration | None = None) -> None:
        """Stop dispatching: running tasks may finish for ``grace``, then they are interrupted, at no cost."""
        seconds = None if grace is None else milliseconds(grace, "grace") / 1000
        stopping = self._stopping
        if stopping is None:
            return
        self._stop_grace = seconds
        stopping.set()
        if self._dispatcher is not None:
            self._dispatcher.wake()
        await self._stopped.wait()

    async def _dispatch(
        self,
        done: Callable[[Dispatcher], bool],
        *,
        standby: bool = False,
        started: asyncio.Event | None = None,
        wake_at: float | None = None,
    ) -> None:
        self._opened()
        if self._stopping is not None:
            raise InvalidState("this scheduler is dispatching already")
        stopping = self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._stop_grace = None
        try:
            right = await self._acquire(stopping, standby)
            if right is not None:
                await self._dispatch_with(right, done, stopping, started, wake_at)
        finally:
            self._stopping = None
            self._stopped.set()

    async def _acquire(self, stopping: asyncio.Event, standby: bool) -> DispatchRight | None:
        while True:
            try:
                return await self._store.acquire_dispatch()
            except AlreadyRunning:
                if not standby:
                    raise
            await self._clock.wait(stopping, self._clock.monotonic() + STANDBY_INTERVAL)
            if stopping.is_set():
                return None

    async def _dispatch_with(
        self,
        right: DispatchRight,
        done: Callable[[Dispatcher], bool],
        stopping: asyncio.Event,
        started: asyncio.Event | None,
        wake_at: float | None,
    ) -> None:
        executors = Executors(LoopExecutor(), ThreadExecutor(self._clock), self._process_executor(right))
        upkeep = Upkeep(self._store, self._clock, self._retention)
        dispatcher = Dispatcher(
            self._store,
            self._registry,
            self._clock,
            executors,
            self._announcer,
            upkeep,
            max_concurrency=self._max_concurrency,
            cancel_timeout=self._cancel_timeout,
            front_size=FRONT,
            wake_at=wake_at,
        )
        try:
            await self._recover()
            self._dispatcher = dispatcher
            self._neighbours.changed = dispatcher.look_again
            if self._store.is_shared:
                self._neighbours.watch()
            if started is not None:
                started.set()
            try:
                await dispatcher.run(lambda: stopping.is_set() or done(dispatcher))
            finally:
                grace = self._shutdown_grace if self._stop_grace is None else self._stop_grace
                await dispatcher.shut_down(grace)
                await upkeep.settle()
        finally:
            self._neighbours.changed = None
            self._dispatcher = None
            await executors.close()
            dispatcher.release_when_quiet(right)

    def _process_executor(self, right: DispatchRight) -> Executor | None:
        if not self._needs_processes:
            return None
        from taskmill.execute.in_processes import ProcessExecutor

        return ProcessExecutor(self._clock, right.inheritable)

    # Submitting

    async def submit(self, submission: Submission, *, connection: object = None) -> Handle[Any]:
        """Store one task. With ``connection`` it is stored in the caller's own transaction on the same file."""
        return (await self.submit_many([submission], connection=connection))[0]

    async def submit_many(self, submissions: Iterable[Submission], *, connection: object = None) -> list[Handle[Any]]:
        """Store many tasks in one transaction; the handles are in input order."""
        tasks = await self.resolve(submissions)
        if connection is not None:
            return self.submit_through(connection, tasks)
        stored = await self._store.add(tasks) if tasks else []
        return self._handles(tasks, stored)

    async def resolve(self, submissions: Iterable[Submission]) -> list[NewTask]:
        """Check submissions and apply defaults; nothing is stored yet."""
        self._opened()
        given = list(submissions)
        for submission in given:
            if not isinstance(submission, Submission):
                raise SubmissionError(
                    f"submissions must be Submission objects such as task.prepare(...) makes, got {submission!r}"
                )
        now = self._clock.now_ms()
        try:
            return [self._registry.resolve(submission, now) for submission in given]
        except UnknownTaskType:
            self._registry.learn_foreign(await self._store.published_types())
            return [self._registry.resolve(submission, now) for submission in given]

    def submit_through(self, connection: object, tasks: Sequence[NewTask]) -> list[Handle[Any]]:
        """Store resolved tasks in the transaction of the caller's connection, in the caller's thread."""
        return self._handles(tasks, self._store.add_through(connection, tasks) if tasks else [])

    def _handles(self, tasks: Sequence[NewTask], stored: Sequence[Stored]) -> list[Handle[Any]]:
        return [self._handle(task.type, answer) for task, answer in zip(tasks, stored, strict=True)]

    def _added(self, tasks: Sequence[NewTask], stored: Sequence[Stored]) -> None:
        if self._dispatcher is not None:
            self._dispatcher.added(tasks, stored)
        self._announcer.submitted(tasks, stored)

    def _handle(self, type: str, stored: Stored) -> Handle[Any]:
        registered = self._registry.find(type)
        return Handle(self, stored, registered.handler.signature.decode_result if registered else None)

    # Reading

    async def get(self, id: int) -> TaskRecord | HistoryRecord:
        """The task with this id, active or ended."""
        self._opened()
        record = await self._store.get(_id(id))
        if record is None:
            raise TaskNotFound(f"no task has the id {id}")
        return self._with_live_progress(record)

    async def find(self, type: str, key: str) -> TaskRecord | HistoryRecord | None:
        """The active task with this key, else the last that ended, else ``None``."""
        self._opened()
        record = await self._store.find(type, key)
        return None if record is None else self._with_live_progress(record)

    async def tasks(self, **filters: Unpack[FilterOptions]) -> list[TaskRecord]:
        """Active tasks, oldest first."""
        self._opened()
        return [self._live(record) for record in await self._store.tasks(checked_filters(filters))]

    async def history(self, **filters: Unpack[FilterOptions]) -> list[HistoryRecord]:
        """Ended tasks, newest first."""
        self._opened()
        return await self._store.history(checked_filters(filters))

    async def count(self, **filters: Unpack[FilterOptions]) -> int:
        """How many active tasks match; with an ending as ``status``, how many ended ones."""
        self._opened()
        return await self._store.count(checked_filters(filters))

    async def stats(self, type: str) -> TypeStats:
        """What is known about a task type from everything that ended."""
        self._opened()
        return await self._store.stats(type)

    async def tag_values(self, key: str) -> dict[str, int]:
        """Each value of a tag among active tasks and how many have it, most frequent first."""
        self._opened()
        return await self._store.tag_values(key)

    async def dead_letters(self, **filters: Unpack[FilterOptions]) -> list[HistoryRecord]:
        """Tasks that ended as dead letters, newest first."""
        filters["status"] = Ending.DEAD_LETTER
        return await self.history(**filters)

    async def snapshot(self) -> Snapshot:
        """A picture of what runs and what waits."""
        self._opened()
        counts = await self._store.counts()
        waiting = await self._store.waiting_by_group()
        running = await self.tasks(status="running")
        busy = Counter(record.group for record in running)
        return Snapshot(
            running=running,
            counts=counts,
            groups={
                name: GroupSnapshot(name=name, running=busy[name], pending=waiting.get(name, 0))
                for name in sorted({*waiting, *busy})
            },
            max_concurrency=self._max_concurrency,
            dispatching=self.is_dispatching,
        )

    async def wait(self, id: int, timeout: Duration | None = None) -> HistoryRecord:
        """Wait until a task has ended, in this process or another."""
        self._opened()
        limit = optional_milliseconds(timeout, "timeout")
        until = None if limit is None else self._clock.monotonic() + limit / 1000
        ended = self._waiters.expect(_id(id))
        try:
            while True:
                ended.clear()
                record = await self.get(id)
                if isinstance(record, HistoryRecord):
                    return record
                if until is not None and self._clock.monotonic() >= until:
                    raise TimeoutError(f"task {id} has not ended after {timeout}")
                if self._store.is_shared:
                    self._neighbours.watch()
                await self._clock.wait(ended, until)
        finally:
            self._waiters.leave(id)

    def events(self, *kinds: type[Event], domain: str | None = None, type: str | None = None) -> Listener:
        """Listen from now on; an async iterator of the kinds given, or of all."""
        self._opened()
        return self._bus.listen(kinds, domain, type)

    async def facts(self) -> Mapping[str, Any]:
        """What ``taskmill doctor`` shows about the store."""
        self._opened()
        return await self._store.facts()

    def _with_live_progress(self, record: TaskRecord | HistoryRecord) -> TaskRecord | HistoryRecord:
        return self._live(record) if isinstance(record, TaskRecord) else record

    def _live(self, record: TaskRecord) -> TaskRecord:
        """With the progress the handler reported last, if it runs here."""
        if self._dispatcher is None:
            return record
        return self._dispatcher.workshop.with_live_progress(record)

    # Control

    async def cancel(self, id: int) -> bool:
        """Cancel a task: at once if it waits; a running one is asked to stop. ``False`` if it had ended."""
        self._opened()
        result = await self._store.cancel([_id(id)], self._clock.now_ms())
        self._announcer.cancelled(result.ended)
        if self._dispatcher is not None:
            self._dispatcher.stop_attempts(result.stopping)
        if not result.ended and not result.stopping:
            await self.get(id)
            return False
        return True

    async def cancel_where(self, **filters: Unpack[FilterOptions]) -> list[int]:
        """Cancel every active task that matches; returns their ids."""
        self._opened()
        if not filters:
            raise ConfigError("cancel_where needs at least one filter; it would cancel everything")
        found = [record.id for record in await self._store.tasks(checked_filters(filters))]
        cancelled: list[int] = []
        for start in range(0, len(found), PRUNE_BITE):
            result = await self._store.cancel(found[start : start + PRUNE_BITE], self._clock.now_ms())
            self._announcer.cancelled(result.ended)
            if self._dispatcher is not None:
                self._dispatcher.stop_attempts(result.stopping)
            cancelled += [*(task.id for task in result.ended), *result.stopping]
        return sorted(cancelled)

    async def retry_dead(self, id: int) -> Handle[Any]:
        """Bring a dead letter back to the queue, under its own id and with a fresh retry counter."""
        self._opened()
        task = await self._store.revive(_id(id), self._clock.now_ms())
        if task is None:
            record = await self.get(id)
            state = record.ending if isinstance(record, HistoryRecord) else record.status
            raise InvalidState(f"task {id} is {state}, not a dead letter")
        self._announcer.revived(task)
        if self._dispatcher is not None:
            self._dispatcher.look_again()
        return self._handle(task.type, Stored(task.id, "inserted"))

    async def set_max_concurrency(self, n: int) -> None:
        """How many tasks may run at once, from now on; running ones are not interrupted."""
        self._max_concurrency = _concurrency(n)
        if self._dispatcher is not None:
            self._dispatcher.max_concurrency = n
            self._dispatcher.wake()

    async def prune(self, retention: Retention | None = None) -> int:
        """Apply retention now, the scheduler's or the one given; returns how many rows of history went."""
        self._opened()
        rule = self._retention if retention is None else retention
        if rule is None:
            return 0
        rules = {ending: rule.for_ending(ending) for ending in Ending}
        removed = 0
        while bite := await self._store.prune(rules, self._clock.now_ms(), PRUNE_BITE):
            removed += bite
        return removed


def _concurrency(n: object) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ConfigError(f"max_concurrency must be a whole number of at least 1, got {n!r}")
    return n


def _id(id: object) -> int:
    if isinstance(id, bool) or not isinstance(id, int):
        raise ConfigError(f"id must be an int, not {type(id).__name__}")
    return id
