"""The shared base of the scheduler's methods: its components and the checks of arguments."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from taskmill.core.process import forked, this_process
from taskmill.errors import ConfigError, InvalidState
from taskmill.handle import Handle, HandlesTasks
from taskmill.model.options import text

if TYPE_CHECKING:
    from taskmill.core.ports import Clock, Store, StoreReader  # noqa: F401 - named in quotes
    from taskmill.define.registry import Registry
    from taskmill.model.commit import Commit
    from taskmill.model.controls import Controls, Declared
    from taskmill.model.settings import Retention
    from taskmill.model.submission import Stored
    from taskmill.observe.bus import EventBus
    from taskmill.observe.tracing import Tracing
    from taskmill.policy.rules import Rules
    from taskmill.runtime.announcer import Announcer, Commits, Waiters
    from taskmill.runtime.loop import DispatchLoop
    from taskmill.runtime.machine_watch import MachineWatch
    from taskmill.runtime.neighbours import Neighbours
    from taskmill.runtime.remote_events import RemoteEvents
    from taskmill.runtime.session import DispatchSession
    from taskmill.runtime.settings import RunSettings
    from taskmill.verbs.blocking import LoopCaller
    from taskmill.verbs.wait_warnings import WaitWarnings


T = TypeVar("T")
OpenStore = TypeVar("OpenStore", bound="StoreReader")


class ReadComponents(Generic[OpenStore]):
    """An open store and a clock: all that reading needs. A scheduler overrides the rest with its own components."""

    _store: OpenStore
    _clock: Clock
    _is_open: bool = False
    _opened_in: int = 0
    """The process that opened it."""

    def _opened(self) -> None:
        """Check that the store is open and that this is the place to use it."""
        self._check_open()

    def _check_open(self) -> None:
        if not self._is_open:
            name = type(self).__name__
            raise InvalidState(f"the {name.lower()} is not open; use `async with {name}(...)`")
        if self._opened_in != this_process():
            raise forked(self._opened_in)

    @property
    def _loop(self) -> DispatchLoop | None:
        """The dispatch loop running in this process, or ``None``."""
        return None

    @property
    def _machine_watch(self) -> MachineWatch | None:
        """The watch of this machine while this process dispatches, or ``None``."""
        return None

    @property
    def _declared(self) -> Declared:
        """The settings that this program declares."""
        return self._store.declared

    @property
    def _retention(self) -> Retention | None:
        """How history is pruned by this program, or ``None``."""
        return None

    def _has_handler(self, type: str) -> bool:  # noqa: ARG002
        """True if this process has a handler for the task type."""
        return False

    def _rules(self, controls: Controls) -> Rules:
        """Return the rules that apply under these controls."""
        from taskmill.policy.rules import Rules, declared_here

        own = self._declared
        if self._loop is None:
            own = declared_here(own, controls, is_dispatched=self._store.dispatcher_is_alive())
        return Rules(own, controls)


class Components(ReadComponents["Store"], HandlesTasks):
    """The components of a scheduler; some exist only while it is open."""

    _registry: Registry
    _settings: RunSettings
    _waiters: Waiters
    _bus: EventBus
    _announcer: Announcer
    _commits: Commits
    _neighbours: Neighbours
    _remote_events: RemoteEvents
    _session: DispatchSession
    _loop_caller: LoopCaller
    _wait_warnings: WaitWarnings
    _tracing: Tracing | None

    @property
    def _is_forked(self) -> bool:
        """True if this process was forked from the one that opened the scheduler."""
        return self._opened_in != this_process()

    @property
    def _loop(self) -> DispatchLoop | None:
        return self._session.loop

    @property
    def _machine_watch(self) -> MachineWatch | None:
        return self._session.machine_watch

    @property
    def _declared(self) -> Declared:
        return self._settings.declared

    @property
    def _retention(self) -> Retention | None:
        return self._settings.retention

    def _has_handler(self, type: str) -> bool:
        return self._registry.find(type) is not None

    async def _settle_clock(self) -> bool:
        """Follow a step of the wall clock before a delay is counted from now; return True if there was one."""
        return self._loop is not None and await self._loop.upkeep.settle_clock()

    def _follow(self, commit: Commit) -> None:
        """Publish a commit to the dispatch loop and to listeners."""
        self._commits.publish(commit, self._clock.now_ms(), durable=True)

    async def _publish_types(self) -> None:
        """Store the defaults of the task types for other processes, and apply the rates of new definitions."""
        from taskmill.define.registry import with_limits

        self._registry.is_changed = False
        before = self._settings.declared
        try:
            if types := self._registry.published():
                await self._store.publish_types(types)
            self._settings.declared = declared = with_limits(before, self._registry)
            if self._loop is not None and declared != before:
                await self._store.declare(declared)
                self._loop.rules_changed()
        except BaseException:
            # The next submission tries again.
            self._registry.is_changed, self._settings.declared = True, before
            raise

    def _handle(self, type: str, stored: Stored) -> Handle[Any]:
        registered = self._registry.find(type)
        return Handle(self, stored, registered.handler.signature.decode_result if registered else None)


def checked_text(value: object, name: str) -> str:
    return text(value, name, ConfigError)


def checked_flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, got {value!r}")
    return value


async def in_thread(simulate: Callable[..., T], *given: Any) -> T:
    """Run a simulation in a thread; if this is cancelled, the simulation stops at its next step."""
    import asyncio

    from taskmill.simulation.stopping import IS_STOPPED

    stop = Event()
    before = IS_STOPPED.set(stop.is_set)
    try:
        return await asyncio.to_thread(simulate, *given)
    finally:
        stop.set()
        IS_STOPPED.reset(before)
