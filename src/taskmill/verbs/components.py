"""The shared base of the scheduler's methods: its components and the checks of arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskmill.core.ports import Clock, Store
from taskmill.define.registry import Registry
from taskmill.errors import ConfigError, InvalidState, TaskNotFound
from taskmill.handle import Handle, HandlesTasks
from taskmill.model.commit import Commit
from taskmill.model.controls import Controls
from taskmill.model.options import text
from taskmill.model.task import Stored
from taskmill.policy.rules import Rules, declared_here
from taskmill.runtime.settings import RunSettings

if TYPE_CHECKING:
    from taskmill.observe.bus import EventBus
    from taskmill.runtime.announcer import Announcer, Commits, Waiters
    from taskmill.runtime.loop import DispatchLoop
    from taskmill.runtime.neighbours import Neighbours
    from taskmill.runtime.session import DispatchSession


class Components(HandlesTasks):
    """The components of a scheduler; some exist only while it is open."""

    _store: Store
    _clock: Clock
    _registry: Registry
    _settings: RunSettings
    _waiters: Waiters
    _bus: EventBus
    _announcer: Announcer
    _commits: Commits
    _neighbours: Neighbours
    _session: DispatchSession
    _is_open: bool

    def _opened(self) -> None:
        if not self._is_open:
            raise InvalidState("the scheduler is not open; use `async with Scheduler(...)`")

    @property
    def _loop(self) -> DispatchLoop | None:
        """The dispatch loop running in this process, or ``None``."""
        return self._session.loop

    async def _settle_clock(self) -> bool:
        """Follow a step of the wall clock before a delay is counted from now; return True if there was one."""
        return self._loop is not None and await self._loop.settle_clock()

    def _rules(self, controls: Controls) -> Rules:
        """Return the rules that apply under these controls."""
        own = self._settings.declared
        if self._loop is None:
            own = declared_here(own, controls, is_dispatched=self._store.dispatcher_is_alive())
        return Rules(own, controls)

    def _follow(self, commit: Commit) -> None:
        """Publish a commit to the dispatch loop and to listeners."""
        self._commits.publish(commit, self._clock.now_ms(), durable=True)

    def _handle(self, type: str, stored: Stored) -> Handle[object]:
        registered = self._registry.find(type)
        return Handle(self, stored, registered.handler.signature.decode_result if registered else None)


def checked_id(id: object) -> int:
    if isinstance(id, bool) or not isinstance(id, int):
        raise ConfigError(f"id must be an int, not {type(id).__name__}")
    if not 0 <= id < 2**63:
        raise TaskNotFound(f"no task has the id {id}")
    return id


def checked_text(value: object, name: str) -> str:
    return text(value, name, ConfigError)


def checked_concurrency(n: object) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ConfigError(f"max_concurrency must be a whole number of at least 1, got {n!r}")
    return n
