"""Change priorities, weights, caps, rates and pauses at run time. The changes are durable."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET, UnsetType

from taskmill.define.domain import check_name
from taskmill.errors import ConfigError, InvalidState, UnknownTaskType
from taskmill.model.arguments import check_arguments
from taskmill.model.controls import EVERYTHING, Change, Declared, Scope, ScopeKind
from taskmill.model.durations import Duration, from_ms, instant, milliseconds
from taskmill.model.records import HistoryRecord
from taskmill.model.settings import Group, RateLimit, priority_value, slot_count
from taskmill.model.type_name import domain_of
from taskmill.verbs.components import checked_text
from taskmill.verbs.control import ControlMethods


class TuneMethods(ControlMethods):
    """Methods that change how tasks share the slots."""

    async def set_priority(self, id: int, priority: int) -> None:
        """Change the priority of an active task; a waiting task moves in the queue accordingly."""
        self._opened()
        value = priority_value(priority, "priority")
        # A task past its deadline has ended for the caller, even if it has not moved to history yet.
        has_ended = isinstance(await self.get(id), HistoryRecord)
        commit = None if has_ended else await self._store.set_priority(id, value)
        if commit is None:
            record = await self.get(id)
            state = record.ending if isinstance(record, HistoryRecord) else "being stopped"
            raise InvalidState(f"task {id} is {state}; its priority can no longer change")
        self._follow(commit)

    def max_wait(self, priority: int) -> timedelta | None:
        """Return the longest wait until a task gets the next free slot; ``None`` (no bound) without aging."""
        from taskmill.policy.aging import max_wait_ms

        aging = self._settings.declared.aging
        value = priority_value(priority, "priority")
        return None if aging is None else timedelta(milliseconds=max_wait_ms(aging, value))

    async def pause(self) -> None:
        """Start no more tasks until :meth:`resume`; running tasks continue."""
        await self._pause(EVERYTHING)

    async def resume(self) -> None:
        """End :meth:`pause`."""
        await self._resume(EVERYTHING)

    async def set_max_concurrency(self, n: int) -> None:
        """Set how many tasks may run at once; running tasks are not interrupted."""
        await self._declare(msgspec.structs.replace(self._settings.declared, max_concurrency=slot_count(n)))

    async def _declare(self, declared: Declared) -> None:
        """Change settings that the program declares."""
        before = self._settings.declared
        # Set before storing: otherwise a turn planned meanwhile could start tasks beyond the limit after the return.
        self._settings.declared = declared
        if self._is_open and self._loop is not None:
            try:
                await self._store.declare(declared)
            except BaseException:
                self._settings.declared = before
                raise
            self._loop.rules_changed()

    def domain(self, name: str) -> DomainControl:
        """Return the controls of a domain, such as ``scheduler.domain("sync").pause()``."""
        check_name(name, "name")
        return DomainControl(self, name)

    def group(self, name: str | None) -> GroupControl:
        """Return the controls of a group, such as ``scheduler.group("s3://prod").set(weight=3)``.

        ``None`` means the ungrouped tasks.
        """
        return GroupControl(self, "" if name is None else checked_text(name, "name"))

    async def reset_group_weights(self) -> None:
        """Give every group the default weight."""
        from taskmill.policy.rules import equal_weights

        self._opened()
        rules = self._rules(await self._store.controls())
        await self._change({Scope(ScopeKind.GROUP, name): change for name, change in equal_weights(rules)})

    async def set_rate_limit(self, type: str, rate: RateLimit | None) -> None:
        """Limit how often tasks of a type start; ``None`` removes the limit."""
        self._opened()
        name = checked_text(type, "type")
        await self._known_type(name)
        await self._change({Scope(ScopeKind.TYPE, name): Change(rate=checked_rate(rate))})

    async def _change(self, changes: Mapping[Scope, Change]) -> None:
        from taskmill.policy.rules import changed

        self._opened()
        before = self._rules(await self._store.controls())
        groups = {scope.name: change for scope, change in changes.items() if scope.kind is ScopeKind.GROUP}
        for name, change in groups.items():
            changed(before.group(name), change)
        if not changes:
            return
        await self._store.change(changes)
        for name, change in groups.items():
            weight = before.group(name).weight
            if change.weight is not UNSET and change.weight != weight:
                self._announcer.weight_changed(name, weight, change.weight)
        self._rules_changed()

    async def _pause(self, scope: Scope, until: int | None = None, duration: int | None = None) -> None:
        self._opened()
        await self._end_pauses()
        now = self._clock.now_ms()
        if duration is not None:
            until = now + duration
        await self._store.pause(scope, now, until, relative=duration is not None)
        self._announcer.scope_paused(scope, None if until is None else from_ms(until))
        self._rules_changed()

    async def _resume(self, scope: Scope) -> None:
        self._opened()
        await self._end_pauses()
        if await self._store.resume(scope, self._clock.now_ms()):
            self._announcer.scope_resumed(scope)
            self._rules_changed()

    async def _end_pauses(self) -> None:
        """End the pauses whose time is over and announce them; the store would end them without an event."""
        for over in await self._store.end_pauses(self._clock.now_ms()):
            self._announcer.scope_resumed(over)
            self._rules_changed()

    def _rules_changed(self) -> None:
        if self._loop is not None:
            self._loop.rules_changed()

    def _checked_end(self, until: datetime | None, duration: Duration | None) -> tuple[int | None, int | None]:
        """Return the end of a pause, or how long it lasts, in milliseconds; None for both if it has no end."""
        if until is not None and duration is not None:
            raise ConfigError("until and duration exclude each other; give one of them")
        ms = None if duration is None else milliseconds(duration, "duration")
        if ms == 0:
            raise ConfigError("duration must be longer than zero")
        at = None if until is None else instant(until, "until")
        if until is not None and at is not None and at <= self._clock.now_ms():
            raise ConfigError(f"until must be in the future, got {until.isoformat()}")
        return at, ms

    async def _known_type(self, name: str) -> None:
        if not self._registry.knows(name) and name not in await self._store.published_types():
            raise UnknownTaskType(f"no task type is named {name!r}; use the full name, 'domain::task'")

    async def _known_domain(self, name: str) -> None:
        known = {domain.name for domain in self._registry.domains}
        if name not in known and name not in set(map(domain_of, await self._store.published_types())):
            raise ConfigError(f"no domain is named {name!r}")


class GroupControl:
    """The controls of one group. Settings and pauses are durable and apply to every process on the store."""

    def __init__(self, scheduler: TuneMethods, name: str) -> None:
        self._scheduler = scheduler
        self._scope = Scope(ScopeKind.GROUP, name)
        self.name = name

    @check_arguments
    async def pause(self, until: datetime | None = None, duration: Duration | None = None) -> None:
        """Start no more tasks of the group until it is resumed or the pause ends; running tasks continue."""
        self._scheduler._opened()
        await self._scheduler._settle_clock()
        await self._scheduler._pause(self._scope, *self._scheduler._checked_end(until, duration))

    async def resume(self) -> None:
        """End the pause. Its tasks have neither aged nor come closer to their deadlines meanwhile."""
        await self._scheduler._resume(self._scope)

    @check_arguments
    async def set(
        self,
        *,
        weight: float | UnsetType = UNSET,
        cap: int | UnsetType | None = UNSET,
        min_slots: int | UnsetType = UNSET,
        rate: RateLimit | UnsetType | None = UNSET,
    ) -> None:
        """Change the given settings; ``None`` for ``cap`` or ``rate`` removes that limit."""
        if rate is not UNSET:
            rate = checked_rate(rate)
        change = Change(weight=weight, cap=cap, min_slots=min_slots, rate=rate)
        if change == Change():
            raise ConfigError("set needs at least one of weight, cap, min_slots, rate")
        # Check the new values against each other, as `Group` does for declared settings.
        Group(**{name: value for name, value in msgspec.structs.asdict(change).items() if value is not UNSET})
        await self._scheduler._change({self._scope: change})


class DomainControl:
    """The controls of one domain."""

    def __init__(self, scheduler: TuneMethods, name: str) -> None:
        self._scheduler = scheduler
        self._scope = Scope(ScopeKind.DOMAIN, name)
        self.name = name

    async def pause(self) -> None:
        """Start no more tasks of the domain until it is resumed; running tasks continue."""
        self._scheduler._opened()
        await self._scheduler._known_domain(self.name)
        await self._scheduler._pause(self._scope)

    async def resume(self) -> None:
        """End :meth:`pause`."""
        self._scheduler._opened()
        await self._scheduler._known_domain(self.name)
        await self._scheduler._resume(self._scope)

    async def set_max_concurrency(self, n: int | None) -> None:
        """Set how many tasks of the domain may run at once; ``None`` removes the limit."""
        self._scheduler._opened()
        cap = None if n is None else slot_count(n)
        await self._scheduler._known_domain(self.name)
        await self._scheduler._change({self._scope: Change(cap=cap)})


def checked_rate(rate: object) -> RateLimit | None:
    if rate is not None and not isinstance(rate, RateLimit):
        raise ConfigError(f"rate must be a RateLimit or None, not {type(rate).__name__}")
    return rate
