"""``Scheduler``: the composition root. Only this file chooses the adapters behind the ports.

Adapters are imported when a scheduler is created or opened, so that a module that only defines tasks, such as one that
a worker process imports, stays cheap to import.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextvars import Token
from functools import partial
from os import PathLike
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from taskmill.define import worker_process
from taskmill.define.domain import Domain, SubmitsTasks, current_scheduler
from taskmill.errors import ConfigError, InvalidState, StoreError
from taskmill.model.arguments import check_arguments
from taskmill.model.durations import Duration, milliseconds
from taskmill.model.settings import Aging, Group, Priority, Retention, Retry, slot_count
from taskmill.verbs.looking_ahead import LookAheadMethods
from taskmill.verbs.running import RunMethods
from taskmill.verbs.submitting import SubmitMethods

if TYPE_CHECKING:
    from taskmill.core.ports import Clock, DispatchRight
    from taskmill.define.middleware import Middleware
    from taskmill.define.task import TaskType
    from taskmill.execute.work import Executor
    from taskmill.model.commit import Commit
    from taskmill.model.cron import Cron, CronTuple
    from taskmill.model.io_budget import IoBudget
    from taskmill.model.machine import Capacity, PressureSource, Resources, ThrottlePolicy
    from taskmill.observe.tracing import Tracing
    from taskmill.policy.io_room import IoLoad
    from taskmill.runtime.cron_tasks import CronTask
    from taskmill.runtime.executors import Executors
    from taskmill.runtime.machine_watch import Watch
    from taskmill.store.opening import AnyStore

_LOADED_WHEN_OPENED = (
    "taskmill.define.parameters",
    "taskmill.execute.in_threads",
    "taskmill.execute.on_loop",
    "taskmill.policy.explaining",
    "taskmill.runtime.executors",
    "taskmill.store.sql.browsing",
    "taskmill.store.sql.damage",
    "taskmill.store.sql.explaining",
    "taskmill.store.sql.queue_state",
    "taskmill.verbs.snapshots",
)
"""Modules that other code imports lazily. They are imported when a scheduler opens, because later the process may have
no file descriptors left, or may have dropped the privileges to read them."""


class Scheduler(SubmitMethods, LookAheadMethods, RunMethods):
    """A durable task scheduler on an SQLite file, in memory, or on PostgreSQL.

    ``async with Scheduler("tasks.db", domains=[...])`` opens it; :meth:`run`, :meth:`run_until_idle` and
    :meth:`running` dispatch. A scheduler that does not dispatch can still submit, read and control tasks.
    """

    @check_arguments
    def __init__(
        self,
        store: str | PathLike[str] | AnyStore = ":memory:",
        *,
        domains: Iterable[Domain] = (),
        cron: Sequence[Cron | CronTuple] = (),
        max_concurrency: int = 8,
        retry: Retry | None = None,
        default_ttl: Duration | None = None,
        groups: Mapping[str, Group] = MappingProxyType({}),
        default_group: Group = Group(),  # noqa: B008 - a frozen value
        aging: Aging | None = None,
        preempt_at: int | None = Priority.CRITICAL,
        pressure: Iterable[PressureSource] = (),
        throttle: ThrottlePolicy | None = None,
        resources: Resources | bool | None = None,
        bandwidth_limit: float | str | None = None,
        retention: Retention | None = Retention(),  # noqa: B008 - a frozen value
        state: Iterable[Any] = (),
        middleware: Sequence[Middleware] = (),
        tracing: bool = False,
        expiry_sweep_interval: Duration = 30,
        cancel_timeout: Duration = 30,
        shutdown_grace: Duration = 10,
        durability: Literal["full", "process"] = "full",
        clock: Clock | None = None,
    ) -> None:
        if durability not in ("full", "process"):
            raise ConfigError(f"durability must be 'full' or 'process', got {durability!r}")
        if retention is not None and not isinstance(retention, Retention):
            raise ConfigError(f"retention must be a Retention or None, not {type(retention).__name__}")
        with _loading():
            from taskmill.core.clock import SystemClock
            from taskmill.define.registry import Registry, declared
            from taskmill.model.machine import ThrottlePolicy, checked_resources
            from taskmill.runtime.settings import RunSettings

            if throttle is not None and not isinstance(throttle, ThrottlePolicy):
                raise ConfigError(f"throttle must be a ThrottlePolicy or None, not {type(throttle).__name__}")
            self._resources = checked_resources(resources)
            self._make_watch = _make_watch(pressure, self._resources, bandwidth_limit)
            crons, domains = _declared_cron(cron, domains)
        self._registry = Registry(domains, retry=retry, ttl=default_ttl, state=state, check_process=_check_process)
        self._middleware, self._tracing = _around_attempts(middleware, tracing)
        self._settings = RunSettings(
            expiry_sweep_interval=milliseconds(expiry_sweep_interval, "expiry_sweep_interval") / 1000,
            cancel_timeout=milliseconds(cancel_timeout, "cancel_timeout") / 1000,
            shutdown_grace=milliseconds(shutdown_grace, "shutdown_grace") / 1000,
            retention=retention,
            declared=declared(self._registry, slot_count(max_concurrency), groups, default_group, aging, preempt_at),
            throttle=throttle or ThrottlePolicy(),
            cron=crons,
        )
        self._clock: Clock = SystemClock() if clock is None else checked_clock(clock)
        with _loading():
            if crons:
                # Raise an unknown time zone now, and not when the first cron task is due.
                self._clock.zone()
            for registered in self._registry:
                if registered.in_process:
                    from taskmill.execute.in_processes import check_importable

                    check_importable(registered.handler.function, registered.handler.name)
            from taskmill.store.opening import open_store

            self._store = open_store(store, durability, self._clock)
        self._store.declared = self._settings.declared
        self._store_name = store if isinstance(store, str | PathLike) else None
        self._companion: Scheduler | None = None
        self._is_open = False
        self._opened_on: asyncio.AbstractEventLoop | None = None
        self._context_token: Token[SubmitsTasks | None] | None = None

    def __repr__(self) -> str:
        return f"<Scheduler {self._store.name}>"

    @check_arguments
    def provide(self, *objects: Any, domain: str | Domain | None = None) -> None:
        """Add objects that handlers get with ``ctx.state(T)``, of one domain or of all, before or after opening."""
        if self._is_open:
            self._check_open()
        self._registry.provide(objects, domain)

    def _opened(self) -> None:
        # The loop on which it was opened runs only in the process that opened it, and only while it is open.
        if asyncio._get_running_loop() is not self._opened_on:
            self._check_open()
            self._loop_caller.check_loop()

    # Opening and closing

    async def __aenter__(self) -> Self:
        await self.open()
        self._context_token = current_scheduler.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._context_token is not None:
            # A scheduler closed in another context than it was opened in (a fixture) has nothing to restore.
            with contextlib.suppress(ValueError):
                current_scheduler.reset(self._context_token)
        await self.close()

    async def open(self) -> None:
        """Create the store or migrate its schema. Nothing else in it changes before dispatching starts."""
        with _loading():
            from taskmill.observe.bus import EventBus
            from taskmill.runtime.announcer import Announcer, Commits, Waiters
            from taskmill.runtime.neighbours import Neighbours
            from taskmill.runtime.remote_events import RemoteEvents
            from taskmill.runtime.session import DispatchSession
            from taskmill.verbs.blocking import LoopCaller
            from taskmill.verbs.wait_warnings import WaitWarnings

            for module in _LOADED_WHEN_OPENED:
                importlib.import_module(module)
        if self._is_open:
            self._opened()
            raise InvalidState("this scheduler is already open")
        worker_process.refuse_to_open()
        await self._store.open()
        try:
            self._companion_lock = asyncio.Lock()
            self._loop_caller = LoopCaller(asyncio.get_running_loop(), threading.get_ident())
            self._waiters = Waiters()
            self._wait_warnings = WaitWarnings()
            self._bus = EventBus(self._clock, self._settings.declared.aging)
            self._connect_counters()
            self._announcer = Announcer(self._store, self._bus, self._waiters)
            self._commits = Commits()
            self._commits.join(self._announcer.follow)
            self._neighbours = Neighbours(self._store, self._waiters)
            self._session = DispatchSession(
                self._store,
                self._registry,
                self._clock,
                self._announcer,
                self._commits,
                self._neighbours,
                self._executors,
                self._settings,
                self._spawn,
                None if self._make_watch is None else partial(self._make_watch, self._clock),
            )
            self._remote_events = RemoteEvents(
                self._store, self._clock, self._bus, self._neighbours, lambda: self._session.loop is not None
            )
            self._store.committed = self._committed
            await self._publish_types()
        except BaseException:
            await self._store.close()
            raise
        self._is_open = True
        self._opened_in, self._opened_on = os.getpid(), asyncio.get_running_loop()
        for domain in self._registry.domains:
            domain.bind(self)

    async def close(self) -> None:
        """Stop dispatching and close the store."""
        if not self._is_open:
            return
        if self._is_forked:
            # Everything that is open belongs to the parent process. This scheduler stays unusable: its store cannot be
            # opened a second time beside what was inherited.
            return
        await self.stop()
        self._is_open, self._opened_on = False, None
        if self._companion is not None:
            await self._companion.close()
            self._companion = None
        for domain in self._registry.domains:
            domain.unbind(self)
        await self._remote_events.close()
        await self._neighbours.close()
        self._bus.close()
        await self._store.close()

    async def _reader(self) -> Scheduler:
        """Return a scheduler that reads this store without delaying the reads of this one; for ``taskmill.web``.

        A scheduler that does not dispatch reads for itself, and so does one in memory, which no other can see.
        """
        self._opened()
        if self._loop is None or self._store_name in (None, ":memory:"):
            return self
        await self._store_beginnings()
        async with self._companion_lock:
            if self._companion is None:
                companion = Scheduler(self._store_name, retention=None, clock=self._clock)
                await companion.open()
                self._companion = companion
        return self._companion

    def _committed(self, commit: Commit) -> None:
        self._commits.publish(commit, self._clock.now_ms(), durable=False)

    def _executors(self, right: DispatchRight) -> Executors:
        from taskmill.execute.in_threads import ThreadExecutor
        from taskmill.execute.on_loop import LoopExecutor
        from taskmill.runtime.executors import Executors

        def processes() -> Executor:
            # Imported here, because most programs never run a handler in a process.
            from taskmill.execute.in_processes import ProcessExecutor

            return ProcessExecutor(self._clock, right.inheritable, self._measure_io())

        return Executors(LoopExecutor(), ThreadExecutor(self._clock), processes, self._middleware)

    def _measure_io(self) -> Callable[[int], IoBudget | None] | None:
        """Return the function that measures the IO of a worker process; ``None`` without ``resources``."""
        if self._resources is None:
            return None
        from taskmill.resources.samplers import process_io

        return process_io


@contextlib.contextmanager
def _loading() -> Generator[None, None, None]:
    """Turn an OS error during an import into a ``StoreError`` that says what to do."""
    try:
        yield
    except OSError as wrong:
        raise StoreError(
            f"a module of taskmill cannot be loaded: {wrong.strerror or wrong} ({wrong.filename}); "
            "if there are too many open files, close some or raise the limit (ulimit -n)"
        ) from wrong


def _check_process(type: TaskType) -> None:
    """Raise ``ConfigError`` if a handler that is being defined cannot run in a worker process."""
    with _loading():
        from taskmill.execute.in_processes import check_loadable

    check_loadable(type.function, type.name)


def _declared_cron(cron: object, domains: Iterable[Domain]) -> tuple[Sequence[CronTask], Iterable[Domain]]:
    if cron == ():
        return (), domains
    if not isinstance(cron, list | tuple):
        raise ConfigError(f"cron must be a list or tuple of Cron, not {type(cron).__name__}")
    # Imported here, because most programs have no cron tasks.
    from taskmill.runtime.cron_tasks import declared_cron

    return declared_cron(cast("Sequence[object]", cron), domains)


def _around_attempts(middleware: object, tracing: object) -> tuple[Sequence[Middleware], Tracing | None]:
    """Return the middleware of a scheduler, with tracing as the outermost, and the tracing itself if it is on."""
    if not isinstance(tracing, bool):
        raise ConfigError(f"tracing must be True or False, got {tracing!r}")
    functions: Sequence[Middleware] = ()
    if middleware != ():
        from taskmill.define.middleware import checked_middleware

        functions = checked_middleware(middleware)
    if not tracing:
        return functions, None
    from taskmill.observe.tracing import Tracing

    tracer = Tracing()
    return (tracer.attempt, *functions), tracer


def _make_watch(pressure: object, chosen: Resources | None, bandwidth_limit: object) -> Callable[..., Watch] | None:
    """Return a factory for the resource watch; ``None`` if nothing is to be watched."""
    from taskmill.model.machine import Resources, checked_bandwidth, checked_sources

    sources, limit = checked_sources(pressure), checked_bandwidth(bandwidth_limit)
    if chosen is None and limit is not None:
        # A bandwidth limit needs measurements of the network.
        chosen = Resources()
    if chosen is None and not sources:
        return None
    from taskmill.resources.watch import BANDWIDTH, ResourceWatch

    if limit is not None and any(source.name == BANDWIDTH for source in sources):
        raise ConfigError(f"bandwidth_limit is the pressure source {BANDWIDTH!r}; give yours another name")

    def make(clock: Clock, load: IoLoad, known: Capacity, changed: Callable[[], None]) -> Watch:
        return ResourceWatch(
            clock,
            sampler=sampler,
            sources=sources,
            interval=chosen.interval_seconds if chosen else 1.0,
            capacity=chosen.capacity if chosen else None,
            known=known,
            bandwidth_limit=limit,
            load=load,
            changed=changed,
        )

    sampler = None if chosen is None else chosen.sampler
    if chosen is not None and sampler is None:
        from taskmill.resources.samplers import PsutilSampler

        sampler = PsutilSampler()
    return make


def lasting_store(store: str | PathLike[str], clock: Clock) -> AnyStore:
    """Return a store that keeps its content when it is closed and opened again, also in memory."""
    from taskmill.store.opening import open_store

    if store == ":memory:":
        from taskmill.store.sqlite.store import LastingMemory

        return LastingMemory(clock)
    return open_store(store, "full", clock)


def checked_clock(clock: Clock) -> Clock:
    for verb in ("now", "now_ms", "zone", "monotonic", "wait"):
        if not callable(getattr(clock, verb, None)):
            raise ConfigError(f"clock must be a clock such as taskmill.testing.ManualClock, got {clock!r}")
    return clock
