"""Keeps the shares of groups true while claims come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from taskmill.model.cluster import Claim
from taskmill.model.group import AllocationReason
from taskmill.policy.shares import Share, allocate, lent
from taskmill.policy.turns import LEAST_MS, Service

if TYPE_CHECKING:
    from taskmill.observe.meter import Meter

_NOTHING = Share(0, 0.0, 0, 0)

CROWD = 4
"""With so many groups for each slot, one that comes or goes changes next to nothing for the others."""
LEAST_CHANGE = 50
"""In a crowd shares are reckoned anew when one group of so many has come or gone."""


class Reallocation(NamedTuple):
    """The share of a group has changed."""

    group: str
    previous_slots: int
    new_slots: int
    reason: AllocationReason


class ShareKeeper:
    """Shares are reckoned anew when a claim has changed in a way that can change them, and only then."""

    def __init__(self) -> None:
        self._service = Service()
        self._claims: dict[str, Claim] = {}
        self._shares: dict[str, Share] = {}
        self._slots = 0
        self._demand = 0
        """All that groups could use."""
        self._weights = 0.0
        self._small_changes = 0
        self.is_stale = True
        self._weights_changed = False
        self._drained: set[str] = set()
        self.changes: list[Reallocation] = []
        """What has changed and was not announced yet."""
        self.meter: Meter | None = None
        self._lent: dict[str, int] = {}

    def rules_changed(self, *, shared: bool, weights_changed: bool) -> None:
        self.is_stale = True
        self._weights_changed = self._weights_changed or weights_changed
        if not shared:
            # Nobody keeps claims up now: those of groups that drain meanwhile would count when shares return.
            self._claims.clear()
            self._shares.clear()
            self._drained.clear()
            self._demand = 0

    def claims(self, group: str, claim: Claim | None, *, drained: bool = False) -> None:
        """What a group asks for now; ``None``: nothing. ``drained`` if nothing of it waits, held back or not."""
        before = self._claims.get(group)
        if claim is None:
            self._claims.pop(group, None)
        else:
            self._claims[group] = claim
        if drained and before is not None:
            self._drained.add(group)
        elif not drained:
            self._drained.discard(group)
        if not self.is_stale:
            self.is_stale = self._matters(group, before, claim)
        self._demand += (claim.bound if claim else 0) - (before.bound if before else 0)

    def _matters(self, group: str, before: Claim | None, now: Claim | None) -> bool:
        """Whether a changed claim can change shares: it does not where a group can use more than its share anyway."""
        if before is not None and now is not None and before[2:] != now[2:]:
            return True
        if self._is_one_of_many(group, now):
            return (before is None or now is None) and self._note_small_change(group, now)
        if before is None or now is None:
            return True
        if before.bound == now.bound:
            return False
        least = min(before.bound, now.bound)
        return least <= self._shares[group].limit or self._demand + now.bound - before.bound < self._slots

    def _is_one_of_many(self, group: str, now: Claim | None) -> bool:
        """Whether a group has so small a part of the slots that its coming and going can wait to be reckoned."""
        if len(self._claims) <= CROWD * self._slots or self._shares.get(group, _NOTHING).limit > 1:
            return False
        return now is None or (now.min_slots == 0 and now.weight * self._slots < self._weights)

    def _note_small_change(self, group: str, now: Claim | None) -> bool:
        """Let a newcomer take its turns; shares are reckoned anew once enough has changed."""
        if now is not None and group not in self._shares:
            self._shares[group] = Share(0, now.weight / self._weights, 1, 0)
        self._small_changes += 1
        return self._small_changes * LEAST_CHANGE > len(self._claims)

    def reckon(self, slots: int) -> bool:
        """Make shares right; says whether they had to be reckoned anew."""
        if not self.is_stale:
            return False
        self._slots = slots
        before, self._shares = self._shares, allocate(slots, self._claims)
        self._demand = sum(claim.bound for claim in self._claims.values())
        self._weights = sum(claim.weight for claim in self._claims.values())
        self._small_changes = 0
        if self.meter is not None:
            self._count_lent(self.meter)
        for group in {**before, **self._shares}:
            old, new = before.get(group, _NOTHING).slots, self._shares.get(group, _NOTHING).slots
            if old != new:
                self.changes.append(Reallocation(group, old, new, self._reason(group, old, new)))
        self.is_stale = self._weights_changed = False
        self._drained.clear()
        self._service.forget_idle(self._claims)
        return True

    def _count_lent(self, meter: Meter) -> None:
        """A slot counts when it is lent, not again while it stays so."""
        before, self._lent = self._lent, lent(self._slots, self._claims, self._shares)
        for group, slots in self._lent.items():
            if (more := slots - before.get(group, 0)) > 0:
                meter.redistributed(group, more)

    def _reason(self, group: str, old: int, new: int) -> AllocationReason:
        if self._weights_changed:
            return "weight_change"
        return "group_drained" if new < old and group in self._drained else "rebalance"

    def key(self, group: str) -> tuple[bool, float] | None:
        """When it is the group's turn, smaller sooner; ``None`` if it has its share already."""
        claim, share = self._claims[group], self._shares[group]
        if claim.running >= share.limit:
            return None
        return claim.running >= share.least, self._service.due(group)

    def started(self, group: str, *, by_turn: bool) -> None:
        claim, share = self._claims[group], self._shares[group]
        if not by_turn:
            self._service.charge(group, claim.weight, self._weights, LEAST_MS)
        elif claim.running >= share.least:
            # What a group is sure of anyway is no turn.
            self._service.begin(group, claim.weight, self._weights)

    def ended(self, group: str, held_ms: int) -> None:
        """A task of ``group`` gives its slot back; that of a minimum costs nothing."""
        claim, more = self._claims.get(group), held_ms - LEAST_MS
        if claim is not None and more > 0 and claim.running > self._shares.get(group, _NOTHING).least:
            self._service.charge(group, claim.weight, self._weights, more)

    def asked(self) -> dict[str, Claim]:
        """What each group asks for."""
        return dict(self._claims)

    def slots_of(self, group: str) -> int:
        return self._shares.get(group, _NOTHING).slots

    def slots_by_group(self) -> dict[str, int]:
        """The share of each group that has work; any thread may ask."""
        return {group: share.slots for group, share in self._shares.copy().items()}
