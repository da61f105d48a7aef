"""Changes of settings that are tried in a simulation, and made by ``apply``.

``changes`` is a mapping with any of ``max_concurrency``, ``groups``, ``default_group``, ``aging``, ``rates`` and
``resume``. Groups and aging may be given as whole values, or as mappings of the fields that change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec
from msgspec import UNSET

from taskmill.errors import ConfigError
from taskmill.model.controls import EVERYTHING, Change, Controls, Declared, Pause, Scope, ScopeKind
from taskmill.model.options import text
from taskmill.model.settings import Aging, Group, RateLimit, slot_count
from taskmill.policy.rules import Rules, changed, combined

NAMES = ("max_concurrency", "groups", "default_group", "aging", "rates", "resume")
_FIELDS = ("weight", "cap", "min_slots", "rate")

T = TypeVar("T", Group, Aging)


class TriedChanges(msgspec.Struct, frozen=True):
    """Checked changes."""

    declared: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    """Settings that the program declares: ``max_concurrency``, ``default_group`` and ``aging``."""
    controls: Mapping[Scope, Change] = msgspec.field(default_factory=dict[Scope, Change])
    """Settings of groups and task types."""
    resume: Sequence[Scope] = ()


def checked_changes(changes: object, rules: Rules) -> TriedChanges:
    """Return the changes, or raise ``ConfigError``; ``rules`` are those in force."""
    if not isinstance(changes, Mapping):
        raise ConfigError(f"changes must be a mapping with any of {', '.join(NAMES)}, not {type(changes).__name__}")
    given = cast("Mapping[object, Any]", changes)
    for name in given:
        if name not in NAMES:
            raise ConfigError(f"changes: {name!r} cannot be changed; use any of {', '.join(NAMES)}")
    declared: dict[str, Any] = {}
    if "max_concurrency" in given:
        declared["max_concurrency"] = slot_count(given["max_concurrency"], "changes: max_concurrency")
    if "default_group" in given:
        declared["default_group"] = _value(Group, given["default_group"], rules.declared.default_group, "default_group")
    if "aging" in given:
        aging = given["aging"]
        known = rules.declared.aging or Aging()
        declared["aging"] = None if aging is None else _value(Aging, aging, known, "aging")
    controls: dict[Scope, Change] = {}
    for name, group in _named(given.get("groups", {}), "groups").items():
        controls[Scope(ScopeKind.GROUP, name)] = _group_change(group, rules.group(name), f"groups[{name!r}]")
    for name, rate in _named(given.get("rates", {}), "rates").items():
        if rate is not None and not isinstance(rate, RateLimit):
            raise ConfigError(f"changes: rates[{name!r}] must be a RateLimit or None, not {type(rate).__name__}")
        controls[Scope(ScopeKind.TYPE, name)] = Change(rate=rate)
    return TriedChanges(declared, controls, _scopes(given.get("resume", ())))


def _named(given: object, name: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"changes: {name} must be a mapping from names to settings, not {type(given).__name__}")
    for each in cast("Mapping[object, Any]", given):
        text(each, f"changes: a name in {name}", ConfigError)
    return cast("Mapping[str, Any]", given)


def _value(kind: type[T], given: object, now: T, name: str) -> T:
    """Return a whole value, or the present one with the fields that are given."""
    if isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"changes: {name} must be {kind.__name__}(...) or a mapping of its fields, not {type(given).__name__}"
        )
    fields = cast("Mapping[str, Any]", given)
    unknown = [field for field in fields if field not in kind.__struct_fields__]
    if unknown:
        known = ", ".join(kind.__struct_fields__)
        raise ConfigError(f"changes: {name} has no field {unknown[0]!r}; its fields are {known}")
    try:
        return kind(**{**msgspec.structs.asdict(now), **fields})
    except ConfigError as wrong:
        raise ConfigError(f"changes: {name}: {wrong}") from wrong


def _group_change(given: object, now: Group, name: str) -> Change:
    group = _value(Group, given, now, name)
    if isinstance(given, Group):
        return Change(weight=group.weight, cap=group.cap, min_slots=group.min_slots, rate=group.rate)
    named = cast("Mapping[str, Any]", given)
    values: dict[str, Any] = {field: getattr(group, field) if field in named else UNSET for field in _FIELDS}
    return Change(**values)


def _scopes(given: object) -> list[Scope]:
    """Return the scopes to resume: group names, or a mapping with ``groups``, ``domains`` and ``scheduler``."""
    if isinstance(given, Mapping):
        named = cast("Mapping[object, Any]", given)
        for key in named:
            if key not in ("groups", "domains", "scheduler"):
                raise ConfigError(f"changes: resume has groups, domains and scheduler, not {key!r}")
        everything = named.get("scheduler", False)
        if not isinstance(everything, bool):
            raise ConfigError(f"changes: resume['scheduler'] must be True or False, got {everything!r}")
        scopes = [EVERYTHING] if everything else []
        scopes += _of_kind(ScopeKind.DOMAIN, named.get("domains", ()))
        return scopes + _of_kind(ScopeKind.GROUP, named.get("groups", ()))
    return _of_kind(ScopeKind.GROUP, given)


def _of_kind(kind: ScopeKind, names: object) -> list[Scope]:
    if isinstance(names, str) or not isinstance(names, Sequence | set | frozenset):
        raise ConfigError("changes: resume must be a list of the names of groups, or a mapping")
    given = cast("Sequence[object]", names)
    return [Scope(kind, text(name, f"changes: a {kind} in resume", ConfigError)) for name in given]


def changed_rules(rules: Rules, changes: TriedChanges, now: int) -> Rules:
    """Return the rules that would be in force with these changes."""
    before = rules.controls
    merged = dict(before.changes)
    for scope, change in changes.controls.items():
        merged[scope] = combined(merged.get(scope, Change()), change)
        if scope.kind is ScopeKind.GROUP:
            # Refuse a minimum above the cap here, as changing it does.
            changed(rules.group(scope.name), change)
    declared: Declared = msgspec.structs.replace(rules.declared, **changes.declared)
    controls: Controls = msgspec.structs.replace(before, changes=merged)
    over = {scope: Pause(before.pauses[scope].since, now) for scope in changes.resume if scope in before.pauses}
    return without_pauses(Rules(declared, controls), over)


def without_pauses(rules: Rules, over: Mapping[Scope, Pause]) -> Rules:
    """Return the rules after some pauses have ended, with their time still to be given back."""
    controls = rules.controls
    kept = {scope: pause for scope, pause in controls.pauses.items() if scope not in over}
    ended = (*controls.ended_pauses, *over.items())
    return Rules(rules.declared, msgspec.structs.replace(controls, pauses=kept, ended_pauses=ended))
