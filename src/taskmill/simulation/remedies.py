"""What would help a waiting task: the smallest changes that would start it now or, if it has a deadline, in time.

Law: every remedy was tried in simulations, and started the task in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from taskmill.model.controls import Scope, ScopeKind
from taskmill.model.explanation import Reason, Remedy, WhenStarted
from taskmill.model.settings import HEAVIEST, RateLimit
from taskmill.model.type_name import domain_of
from taskmill.policy.rules import Rules
from taskmill.policy.wording import group_text, plural, rate_text
from taskmill.simulation.trials import Trials

MOST_MORE = 64
"""The most slots that are added. A rate or a weight is multiplied by at most one more than this."""
MOST_GROUPS = 3
"""The most groups for which changes are tried: that of the task, and those of the tasks that it waits for."""

REMEDIABLE: frozenset[Reason] = frozenset(
    {
        "group_paused",
        "domain_paused",
        "scheduler_paused",
        "group_cap",
        "group_rate",
        "type_rate",
        "slots",
        "share",
        "ahead",
    }
)
"""Holds that a change of settings can end at once."""


class SettingsChange:
    """A change of settings, in words and as the argument of ``Scheduler.apply``."""

    def __init__(self, text: str = "", changes: Mapping[str, Any] | None = None) -> None:
        self.words = [text] if text else []
        self.changes: dict[str, Any] = dict(changes or {})

    def __and__(self, other: SettingsChange) -> SettingsChange:
        """Return both changes together."""
        both = SettingsChange()
        both.words = [*self.words, *(word for word in other.words if word not in self.words)]
        both.changes = {**self.changes, **other.changes}
        for name in self.changes.keys() & other.changes.keys() & {"groups", "resume"}:
            both.changes[name] = {**self.changes[name], **other.changes[name]}
        for group in self.changes.get("groups", {}).keys() & other.changes.get("groups", {}).keys():
            both.changes["groups"][group] = {**self.changes["groups"][group], **other.changes["groups"][group]}
        return both

    def remedy(self, starts: WhenStarted) -> Remedy:
        return Remedy(" and ".join(self.words), self.changes, starts)


Kind = Callable[[int], SettingsChange]
"""Returns a change of settings of a given size."""
Helps = Callable[[Mapping[str, Any]], bool]


def starting_now(trials: Trials, reasons: set[Reason]) -> Iterator[Remedy]:
    """Yield the smallest changes that start the task now."""
    rules, helps = trials.rules, trials.start_now
    needed = SettingsChange()
    for step in _unlocked(trials, reasons):
        needed &= step
    if needed.changes and helps(needed.changes):
        yield needed.remedy("now")
        return
    caps = [_besides(needed, kind) for kind in _caps(rules, [trials.task.group])]
    for step in _smallest_of_each(caps, _besides(needed, _slots(rules)), helps):
        yield step.remedy("now")


def starting_in_time(trials: Trials) -> Iterator[Remedy]:
    """Yield the smallest change of each kind that starts the task before its deadline."""
    rules, task, helps = trials.rules, trials.task, trials.start_in_time
    for step in _smallest_of_each(_caps(rules, _groups(trials)), _slots(rules), helps):
        yield step.remedy("in_time")
    for kind in (*_weights(rules, task.group), *_rates(rules, task.group, task.type)):
        if (more := _least(kind, helps)) is not None:
            yield kind(more).remedy("in_time")


def _smallest_of_each(caps: Sequence[Kind], slots: Kind, helps: Helps) -> Iterator[SettingsChange]:
    """Yield the smallest helpful change of each kind; if none helps by itself, a larger cap together with slots."""
    is_found = False
    for kind in (*caps, slots):
        if (more := _least(kind, helps)) is not None:
            is_found = True
            yield kind(more)
    if is_found or not caps:
        return
    cap = caps[0]
    if (more := _least(_besides(cap(MOST_MORE), slots), helps)) is not None:
        grown = slots(more)
        if (more := _least(lambda more: cap(more) & grown, helps)) is not None:
            yield cap(more) & grown


def _least(kind: Kind, helps: Helps) -> int | None:
    """Return the smallest size at which a change helps, if larger ones help too; None if the largest does not."""
    if not helps(kind(MOST_MORE).changes):
        return None
    low, high = 0, 1
    while high < MOST_MORE and not helps(kind(high).changes):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if helps(kind(middle).changes) else (middle, high)
    return high


def _besides(step: SettingsChange, kind: Kind) -> Kind:
    """Return the kind of change that is made together with a given change."""
    return lambda more: step & kind(more)


# Kinds of changes


def _slots(rules: Rules) -> Kind:
    slots = rules.declared.max_concurrency
    return lambda more: SettingsChange(plural(more, "more slot", "more slots"), {"max_concurrency": slots + more})


def _caps(rules: Rules, groups: Sequence[str]) -> list[Kind]:
    def kind(group: str, cap: int) -> Kind:
        return lambda more: SettingsChange(
            f"cap of {group_text(group)} from {cap} to {cap + more}", {"groups": {group: {"cap": cap + more}}}
        )

    return [kind(group, cap) for group in groups if (cap := rules.group(group).cap) is not None]


def _weights(rules: Rules, group: str) -> Iterator[Kind]:
    weight = rules.group(group).weight
    if rules.is_shared and weight * (1 + MOST_MORE) <= HEAVIEST:
        yield lambda more: SettingsChange(
            f"weight of {group_text(group)} from {weight:g} to {weight * (1 + more):g}",
            {"groups": {group: {"weight": weight * (1 + more)}}},
        )


def _rates(rules: Rules, group: str, type: str) -> Iterator[Kind]:
    def faster(rate: RateLimit, more: int) -> RateLimit:
        return RateLimit(rate.permits * (1 + more), rate.interval, rate.burst)

    of_group, of_type = rules.group(group).rate, rules.rate(Scope(ScopeKind.TYPE, type))
    if of_group is not None:
        yield lambda more: SettingsChange(
            f"rate limit of {group_text(group)} from {rate_text(of_group)} to {rate_text(faster(of_group, more))}",
            {"groups": {group: {"rate": faster(of_group, more)}}},
        )
    if of_type is not None:
        yield lambda more: SettingsChange(
            f"rate limit of {type} from {rate_text(of_type)} to {rate_text(faster(of_type, more))}",
            {"rates": {type: faster(of_type, more)}},
        )


def _unlocked(trials: Trials, reasons: set[Reason]) -> Iterator[SettingsChange]:
    """Yield the changes that every remedy needs: resume what is paused, remove a rate limit that is used up."""
    rules, task = trials.rules, trials.task
    if "scheduler_paused" in reasons:
        yield SettingsChange("resume the scheduler", {"resume": {"scheduler": True}})
    if "domain_paused" in reasons:
        domain = domain_of(task.type)
        yield SettingsChange(f"resume domain {domain!r}", {"resume": {"domains": [domain]}})
    if "group_paused" in reasons:
        yield SettingsChange(f"resume {group_text(task.group)}", {"resume": {"groups": [task.group]}})
    if "group_rate" in reasons:
        yield SettingsChange(f"no rate limit for {group_text(task.group)}", {"groups": {task.group: {"rate": None}}})
    if "type_rate" in reasons and rules.rate(Scope(ScopeKind.TYPE, task.type)) is not None:
        yield SettingsChange(f"no rate limit for {task.type}", {"rates": {task.type: None}})


def _groups(trials: Trials) -> list[str]:
    """Return the group of the task, and those of the tasks that it waits for."""
    tasks = trials.beginning.tasks
    waits_for: dict[int, list[int]] = {}
    for on, waiting in trials.beginning.blocks.items():
        for id in waiting:
            waits_for.setdefault(id, []).append(on)
    found, ids, seen = {trials.task.group: None}, [trials.task.id], set[int]()
    while ids:
        id = ids.pop()
        if id not in seen and id in tasks:
            seen.add(id)
            found[tasks[id].group] = None
            ids += waits_for.get(id, ())
    return list(found)[:MOST_GROUPS]
