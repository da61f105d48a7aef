"""Counts holds for the metrics: how often each reason began to hold waiting tasks back.

A hold is counted when it begins. A group that stays at its cap while its tasks come and go is counted once, not once
per turn. Nothing is counted while metrics are off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from taskmill.dispatch.front import Front
from taskmill.dispatch.picker import Picker
from taskmill.model.controls import EVERYTHING
from taskmill.model.explanation import Reason
from taskmill.policy.holds import passes_shares

_NOTHING: frozenset[_GroupHold] = frozenset()


class _GroupHold(NamedTuple):
    """Why a group, or its tasks of one type, are passed over."""

    reason: Reason
    name: str


class HoldCounter:
    """Remembers the current holds, so that each is counted only when it begins."""

    def __init__(self, denied: Callable[[Reason], None], picker: Picker, front: Front) -> None:
        self._denied = denied
        self._picker = picker
        self._front = front
        self._groups: dict[str, frozenset[_GroupHold]] = {}
        self._everything: Reason | None = None
        picker.looked = {*front.groups}

    def count(self, free: int, now: int, *, prefetched: bool = False) -> None:
        """Count the holds that began since the last call; ``free`` slots are left after picking.

        ``prefetched`` is True if prefetched tasks wait for a slot.
        """
        picker = self._picker
        before, self._everything = self._everything, self._hold_on_everything(free, prefetched)
        if self._everything is not None and self._everything != before:
            self._denied(self._everything)
        if not picker.looked or self._everything == "scheduler_paused":
            # While everything is paused, nothing else holds a task back.
            return
        picker.limits.at(now)
        looked, picker.looked = picker.looked, set()
        for group in looked:
            known, holds = self._groups.get(group, _NOTHING), frozenset(self._holds_on(group))
            for hold in holds - known:
                self._denied(hold.reason)
            if holds:
                self._groups[group] = holds
            elif known:
                del self._groups[group]

    def _hold_on_everything(self, free: int, prefetched: bool) -> Reason | None:
        if prefetched:
            return "slots"
        if self._front.is_empty:
            return None
        if self._picker.rules.is_paused(EVERYTHING):
            return "scheduler_paused"
        return "slots" if free <= 0 and self._picker.has_candidates else None

    def _holds_on(self, group: str) -> list[_GroupHold]:
        lanes = [lane for lane, known in self._front.of(group).items() if known.places]
        if not lanes:
            return []
        picker = self._picker
        holds = [
            _GroupHold(held.reason, lane.type)
            for lane in lanes
            if (held := picker.limits.type_hold(lane.type)) is not None
        ]
        # A task of a paused domain is paused, so no other limit of its group counts for it.
        are_paused = len(holds) == len(lanes) and all(hold.reason == "domain_paused" for hold in holds)
        held = picker.limits.group_hold(group)
        if held is not None and (held.reason == "group_paused" or not are_paused):
            return [_GroupHold(held.reason, group)]
        if self._is_beyond_share(group):
            return [_GroupHold("share", group)]
        if group in picker.throttled:
            holds.append(_GroupHold("pressure", group))
        if group in picker.backpressure.io_held:
            holds.append(_GroupHold("io", group))
        return holds

    def _is_beyond_share(self, group: str) -> bool:
        picker, task = self._picker, self._picker.next_of(group)
        if task is None or not picker.rules.is_shared or passes_shares(task.effective, picker.rules):
            return False
        return picker.shares.key(group) is None
