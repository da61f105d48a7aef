"""Counting holds: how often, and why, the dispatcher began to pass over something that waits.

Asked after each choice of what starts, and only where somebody counts. A hold counts when it begins: a group that stays
at its cap while its tasks come and go is held once, not once per turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from taskmill.model.controls import EVERYTHING, Scope, ScopeKind
from taskmill.model.explanation import Reason
from taskmill.policy.aging import is_urgent
from taskmill.runtime.glimpse import Glimpse
from taskmill.runtime.load import Load
from taskmill.runtime.picking import Picker

if TYPE_CHECKING:
    from taskmill.observe.meter import Meter

_NOTHING: frozenset[_GroupHold] = frozenset()


class _GroupHold(NamedTuple):
    """Why a group, or what waits in it of one task type or domain, is passed over."""

    reason: Reason
    name: str


class HoldCount:
    """Remembers what is held, so that only beginnings count."""

    def __init__(self, meter: Meter, picker: Picker, glimpse: Glimpse, load: Load) -> None:
        self._meter = meter
        self._picker = picker
        self._glimpse = glimpse
        self._load = load
        self._groups: dict[str, frozenset[_GroupHold]] = {}
        self._everything: Reason | None = None
        picker.looked = {*glimpse.groups}

    def count(self, free: int, now: int) -> None:
        """What starts was chosen, and ``free`` slots are left."""
        picker = self._picker
        before, self._everything = self._everything, self._hold_on_everything(free)
        if self._everything is not None and self._everything != before:
            self._meter.denied(self._everything)
        if not picker.looked:
            return
        looked, picker.looked = picker.looked, set()
        for group in looked:
            known, holds = self._groups.get(group, _NOTHING), frozenset(self._holds_on(group, now))
            for hold in holds - known:
                self._meter.denied(hold.reason)
            if holds:
                self._groups[group] = holds
            elif known:
                del self._groups[group]

    def _hold_on_everything(self, free: int) -> Reason | None:
        if self._glimpse.is_empty:
            return None
        if self._picker.rules.is_paused(EVERYTHING):
            return "scheduler_paused"
        return "slots" if free <= 0 and self._picker.has_candidates else None

    def _holds_on(self, group: str, now: int) -> list[_GroupHold]:
        lanes = [lane for lane, known in self._glimpse.of(group).items() if known.places]
        if not lanes:
            return []
        if (reason := self._hold_on_group(group)) is not None:
            return [_GroupHold(reason, group)]
        holds = [
            _GroupHold(reason, lane.type)
            for lane in lanes
            if (reason := self._picker.gates.hold_on(lane.type, now)) is not None
        ]
        if group in self._picker.throttled:
            holds.append(_GroupHold("pressure", group))
        if group in self._picker.courtesy.io_held:
            holds.append(_GroupHold("io", group))
        return holds

    def _hold_on_group(self, group: str) -> Reason | None:
        picker, rules = self._picker, self._picker.rules
        if not rules.limits_anything:
            return None
        scope, settings = Scope(ScopeKind.GROUP, group), rules.group(group)
        if rules.is_paused(scope):
            return "group_paused"
        if settings.rate is not None and not picker.meters.permits(scope, settings.rate):
            return "group_rate"
        if settings.cap is not None and self._load.in_group(group) >= settings.cap:
            return "group_cap"
        candidate = picker.candidate(group)
        if candidate is None or not rules.is_shared or picker.shares.key(group) is not None:
            return None
        declared = rules.declared
        passes_over = candidate.effective <= declared.preempt_at or is_urgent(declared.aging, candidate.effective)
        return None if passes_over else "share"
