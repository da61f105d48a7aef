"""Tuning while it runs: priorities, weights, caps, rates, pauses. What is set or paused here is durable."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET, UnsetType

from taskmill.define.domain import check_name
from taskmill.errors import ConfigError, InvalidState, UnknownTaskType
from taskmill.model.controls import EVERYTHING, Change, Scope, ScopeKind
from taskmill.model.durations import Duration, from_ms, instant, milliseconds
from taskmill.model.group import Group
from taskmill.model.priority import priority_value
from taskmill.model.rate_limit import RateLimit
from taskmill.model.records import HistoryRecord
from taskmill.model.task_name import domain_of
from taskmill.policy.aging import max_wait_ms
from taskmill.policy.rules import changed, equal_weights
from taskmill.verbs.control import Control
from taskmill.verbs.parts import checked_concurrency, checked_id, checked_text


class Tuning(Control):
    """Verbs that change how tasks share the machine."""

    async def set_priority(self, id: int, priority: int) -> None:
        """Give an active task another priority; a waiting one takes its place accordingly."""
        self._opened()
        value = priority_value(priority, "priority")
        effects = await self._store.set_priority(checked_id(id), value)
        if effects is None:
            record = await self.get(id)
            state = record.ending if isinstance(record, HistoryRecord) else "being stopped"
            raise InvalidState(f"task {id} is {state}; its priority no longer matters")
        self._follow(effects)

    def max_wait(self, priority: int) -> timedelta | None:
        """How long a task waits at most until it takes the next free slot; ``None`` without aging: for ever."""
        aging = self._settings.declared.aging
        value = priority_value(priority, "priority")
        return None if aging is None else timedelta(milliseconds=max_wait_ms(aging, value))

    async def pause(self) -> None:
        """Start nothing more until :meth:`resume`; what runs goes on."""
        await self._pause(EVERYTHING, None)

    async def resume(self) -> None:
        """Go on after :meth:`pause`."""
        await self._resume(EVERYTHING)

    async def set_max_concurrency(self, n: int) -> None:
        """How many tasks may run at once, from now on; running ones are not interrupted."""
        before = self._settings.declared
        declared = msgspec.structs.replace(before, max_concurrency=checked_concurrency(n))
        # First of all: what is planned while that is stored would begin after we have returned.
        self._settings.declared = declared
        if self._is_open and self._dispatcher is not None:
            try:
                await self._store.declare(declared)
            except BaseException:
                self._settings.declared = before
                raise
            self._dispatcher.look_again()

    def domain(self, name: str) -> DomainControl:
        """``scheduler.domain("sync").pause()`` and other verbs for all task types of a domain."""
        check_name(name, "name")
        return DomainControl(self, name)

    def group(self, name: str | None) -> GroupControl:
        """``scheduler.group("s3://prod").set(weight=3)`` and other verbs; ``None`` means the ungrouped tasks."""
        return GroupControl(self, "" if name is None else checked_text(name, "name"))

    async def reset_group_weights(self) -> None:
        """Give every group the default weight."""
        self._opened()
        rules = self._rules(await self._store.controls())
        await self._change({Scope(ScopeKind.GROUP, name): change for name, change in equal_weights(rules)})

    async def set_rate_limit(self, type: str, rate: RateLimit | None) -> None:
        """Limit how often tasks of a type start; ``None`` lifts the limit."""
        self._opened()
        name = checked_text(type, "type")
        if not self._registry.knows(name) and name not in await self._store.published_types():
            raise UnknownTaskType(f"no task type is named {name!r}; use the full name, 'domain::task'")
        await self._change({Scope(ScopeKind.TYPE, name): Change(rate=checked_rate(rate))})

    # What the controls of groups and domains are made of

    async def _change(self, changes: Mapping[Scope, Change]) -> None:
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
        self._look_again()

    async def _pause(self, scope: Scope, until: int | None, *, relative: bool = False) -> None:
        self._opened()
        now = self._clock.now_ms()
        await self._end_pauses(now)
        await self._store.pause(scope, now, until, relative=relative)
        self._announcer.scope_paused(scope, None if until is None else from_ms(until))
        self._look_again()

    async def _resume(self, scope: Scope) -> None:
        self._opened()
        now = self._clock.now_ms()
        await self._end_pauses(now)
        if await self._store.resume(scope, now):
            self._announcer.scope_resumed(scope)
            self._look_again()

    async def _end_pauses(self, now: int) -> None:
        """End the pauses that are over, each as of its time: the store would, and nobody would be told."""
        for over in await self._store.end_pauses(now):
            self._announcer.scope_resumed(over)
            self._look_again()

    def _look_again(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.look_again()

    def _pause_end(self, until: datetime | None, duration: Duration | None) -> int | None:
        if until is not None and duration is not None:
            raise ConfigError("until and duration exclude each other; give one of them")
        now = self._clock.now_ms()
        if duration is not None:
            if (ms := milliseconds(duration, "duration")) == 0:
                raise ConfigError("duration must be longer than zero")
            return now + ms
        if until is not None:
            at = instant(until, "until")
            if at <= now:
                raise ConfigError(f"until must be in the future, got {until.isoformat()}")
            return at
        return None

    async def _known_domain(self, name: str) -> None:
        known = {domain.name for domain in self._registry.domains}
        if name not in known and name not in set(map(domain_of, await self._store.published_types())):
            raise ConfigError(f"no domain is named {name!r}")


class GroupControl:
    """One group of a scheduler. What is set or paused is durable and holds for every process on the store."""

    def __init__(self, scheduler: Tuning, name: str) -> None:
        self._scheduler = scheduler
        self._scope = Scope(ScopeKind.GROUP, name)
        self.name = name

    async def pause(self, until: datetime | None = None, duration: Duration | None = None) -> None:
        """Start nothing more of the group, until it is resumed or the time has come; what runs goes on."""
        self._scheduler._opened()
        await self._scheduler._settle_clock()
        ends_at = self._scheduler._pause_end(until, duration)
        await self._scheduler._pause(self._scope, ends_at, relative=duration is not None)

    async def resume(self) -> None:
        """Go on; while it was paused its tasks have neither aged nor come closer to their deadlines."""
        await self._scheduler._resume(self._scope)

    async def set(
        self,
        *,
        weight: float | UnsetType = UNSET,
        cap: int | UnsetType | None = UNSET,
        min_slots: int | UnsetType = UNSET,
        rate: RateLimit | UnsetType | None = UNSET,
    ) -> None:
        """Change what is given; ``None`` for ``cap`` or ``rate`` lifts it."""
        if rate is not UNSET:
            rate = checked_rate(rate)
        change = Change(weight=weight, cap=cap, min_slots=min_slots, rate=rate)
        if change == Change():
            raise ConfigError("set needs at least one of weight, cap, min_slots, rate")
        # What is said together must make sense together, as in the settings of a program.
        Group(**{name: value for name, value in msgspec.structs.asdict(change).items() if value is not UNSET})
        await self._scheduler._change({self._scope: change})


class DomainControl:
    """One domain of a scheduler."""

    def __init__(self, scheduler: Tuning, name: str) -> None:
        self._scheduler = scheduler
        self._scope = Scope(ScopeKind.DOMAIN, name)
        self.name = name

    async def pause(self) -> None:
        """Start nothing more of the domain until it is resumed; what runs goes on."""
        self._scheduler._opened()
        await self._scheduler._known_domain(self.name)
        await self._scheduler._pause(self._scope, None)

    async def resume(self) -> None:
        """Go on after :meth:`pause`."""
        self._scheduler._opened()
        await self._scheduler._known_domain(self.name)
        await self._scheduler._resume(self._scope)

    async def set_max_concurrency(self, n: int | None) -> None:
        """How many tasks of the domain may run at once; ``None``: as many as there are slots."""
        self._scheduler._opened()
        cap = None if n is None else checked_concurrency(n)
        await self._scheduler._known_domain(self.name)
        await self._scheduler._change({self._scope: Change(cap=cap)})


def checked_rate(rate: object) -> RateLimit | None:
    if rate is not None and not isinstance(rate, RateLimit):
        raise ConfigError(f"rate must be a RateLimit or None, not {type(rate).__name__}")
    return rate
