"""The rules in force: the settings that the program declares, with the changes made at run time.

A setting made at run time stays in force, even after a restart, until the program declares a different value for it.
So the latest change wins, whether it was made in code or at run time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from taskmill.model.controls import EVERYTHING, NO_CHANGE, Change, Controls, Declared, Pause, Scope, ScopeKind
from taskmill.model.settings import Group, RateLimit
from taskmill.model.type_name import domain_of
from taskmill.policy.shares import is_shared


class TypeLimits(NamedTuple):
    """The limits on all tasks of a type, whatever their group."""

    domain: Scope
    is_paused: bool
    cap: int | None
    """The cap of its domain."""
    type: Scope
    rate: RateLimit | None


class Rules:
    """The settings in force for groups, domains and task types. Cheap to build, and rebuilt with each change."""

    def __init__(self, declared: Declared, controls: Controls) -> None:
        self.declared = declared
        self.controls = controls
        self._type_limits: dict[str, TypeLimits | None] = {}
        named = {*declared.groups, *(scope.name for scope in controls.changes if scope.kind is ScopeKind.GROUP)}
        self._groups = {
            name: changed(declared.groups.get(name, declared.default_group), self.change(ScopeKind.GROUP, name))
            for name in named
        }
        """The groups with settings of their own; the others have the default."""
        self.is_shared = is_shared([declared.default_group, *self._groups.values()])
        """True if groups have shares; otherwise priority is global."""
        self.named_groups = frozenset(named)
        self.limits_anything = bool(
            controls.changes
            or controls.pauses
            or declared.domain_caps
            or declared.rates
            or self.is_shared
            or any(map(_limits, [declared.default_group, *declared.groups.values()]))
        )
        """True if anything besides priority and the number of slots decides which tasks start."""

    def group(self, name: str) -> Group:
        return self._groups.get(name, self.declared.default_group)

    def shares_like(self, other: Rules) -> bool:
        """True if all weights, caps and minimums are the same."""
        groups = {*self.named_groups, *other.named_groups}
        pairs = [(self.declared.default_group, other.declared.default_group)]
        pairs += [(self.group(name), other.group(name)) for name in groups]
        return all((one.weight, one.cap, one.min_slots) == (two.weight, two.cap, two.min_slots) for one, two in pairs)

    def change(self, kind: ScopeKind, name: str) -> Change:
        return self.controls.changes.get(Scope(kind, name), NO_CHANGE)

    def limits_on_type(self, type: str) -> TypeLimits | None:
        """Return the limits on tasks of a type, or None if there are none."""
        if type not in self._type_limits:
            domain, scope = Scope(ScopeKind.DOMAIN, domain_of(type)), Scope(ScopeKind.TYPE, type)
            limits = TypeLimits(domain, self.is_paused(domain), self.domain_cap(domain.name), scope, self.rate(scope))
            is_unlimited = not limits.is_paused and limits.cap is None and limits.rate is None
            self._type_limits[type] = None if is_unlimited else limits
        return self._type_limits[type]

    def domain_cap(self, name: str) -> int | None:
        cap = self.change(ScopeKind.DOMAIN, name).cap
        return self.declared.domain_caps.get(name) if cap is UNSET else cap

    def rate(self, scope: Scope) -> RateLimit | None:
        """Return the rate limit of a group or a task type."""
        if scope.kind is ScopeKind.GROUP:
            return self.group(scope.name).rate
        rate = self.change(ScopeKind.TYPE, scope.name).rate
        return self.declared.rates.get(scope.name) if rate is UNSET else rate

    def pauses(self, group: str, type: str) -> Mapping[Scope, Pause]:
        """Return all pauses that apply to tasks of this type in this group."""
        pauses = self.controls.pauses
        if not pauses:
            return {}
        return {scope: pauses[scope] for scope in pause_scopes(group, type) if scope in pauses}

    def owed(self, group: str, type: str) -> list[Pause]:
        """Return the ended pauses of this type and group whose time is not yet given back to all tasks."""
        ended = self.controls.ended_pauses
        if not ended:
            return []
        scopes = pause_scopes(group, type)
        return [pause for scope, pause in ended if scope in scopes]

    def paused(self, kind: ScopeKind, now: int) -> dict[str, int | None]:
        """Return the names of the paused scopes of a kind, each with the end of its pause."""
        pauses = self.controls.pauses.items()
        return {scope.name: pause.until for scope, pause in pauses if scope.kind is kind and pause.holds(now)}

    def is_paused(self, scope: Scope) -> bool:
        """True if the scope has a stored pause, even one whose time is over."""
        return scope in self.controls.pauses

    def at(self, now: int) -> Rules:
        """Return these rules without the pauses whose time is over, though they are still stored."""
        over = [scope for scope, pause in self.controls.pauses.items() if not pause.holds(now)]
        if not over:
            return self
        pauses = {scope: pause for scope, pause in self.controls.pauses.items() if scope not in over}
        return Rules(self.declared, msgspec.structs.replace(self.controls, pauses=pauses))

    def next_resumption(self) -> int | None:
        """Return when the first timed pause ends; ``None`` if there is none."""
        return min((pause.until for pause in self.controls.pauses.values() if pause.until is not None), default=None)


def pause_scopes(group: str, type: str) -> tuple[Scope, Scope, Scope]:
    """Return the scopes whose pauses apply to tasks of this type in this group."""
    return EVERYTHING, Scope(ScopeKind.DOMAIN, domain_of(type)), Scope(ScopeKind.GROUP, group)


def declared_here(own: Declared, controls: Controls, *, is_dispatched: bool) -> Declared:
    """Return the declared settings in force, as seen by this program.

    The declarations of the dispatching program count. If none dispatches, a program that declares nothing uses those of
    the last dispatcher.
    """
    stored = controls.declared
    return stored if stored is not None and (is_dispatched or own == Declared()) else own


def _limits(group: Group) -> bool:
    return group.cap is not None or group.rate is not None


def changed(group: Group, change: Change) -> Group:
    """Return a group with the changes made at run time."""
    if change is NO_CHANGE:
        return group
    settings: dict[str, Any] = msgspec.structs.asdict(group)
    settings |= {name: value for name, value in msgspec.structs.asdict(change).items() if value is not UNSET}
    return Group(**settings)


def combined(before: Change, now: Change) -> Change:
    """Combine two changes; ``now`` wins over ``before``."""
    earlier, later = msgspec.structs.asdict(before), msgspec.structs.asdict(now)
    return Change(**{name: earlier[name] if value is UNSET else value for name, value in later.items()})


def still_valid(change: Change, before: Declared | None, now: Declared, scope: Scope) -> Change:
    """Return the part of a run-time change that stays in force when the program declares new settings."""
    if before is None:
        return change
    old, new = _declared_about(before, scope), _declared_about(now, scope)
    kept = {
        name: UNSET if old.get(name) != new.get(name) else value
        for name, value in msgspec.structs.asdict(change).items()
    }
    return Change(**kept)


def _declared_about(declared: Declared, scope: Scope) -> Mapping[str, Any]:
    match scope.kind:
        case ScopeKind.GROUP:
            return msgspec.structs.asdict(declared.groups.get(scope.name, declared.default_group))
        case ScopeKind.DOMAIN:
            return {"cap": declared.domain_caps.get(scope.name)}
        case ScopeKind.TYPE:
            return {"rate": declared.rates.get(scope.name)}
        case ScopeKind.SCHEDULER:
            return {}


def equal_weights(rules: Rules) -> Iterable[tuple[str, Change]]:
    """Return the changes that give every group the default weight."""
    weight = rules.declared.default_group.weight
    for name in sorted(rules.named_groups):
        if rules.group(name).weight != weight:
            yield name, Change(weight=weight)
