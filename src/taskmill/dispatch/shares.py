"""The shares of groups, kept current while their demands change."""

from collections.abc import Callable
from copy import deepcopy
from typing import NamedTuple

from taskmill.model.cluster import Demand
from taskmill.model.settings import AllocationReason
from taskmill.policy.fair_queue import LEAST_MS, Charge, VirtualTime
from taskmill.policy.shares import NO_SHARE, Share, allocate, lent

CROWD = 4
"""With this many groups per slot, one group more or less changes the shares of the others very little."""
LEAST_CHANGE = 50
"""In a crowd, shares are computed again after one group in this many has come or gone."""


class Reallocation(NamedTuple):
    """A changed share of a group."""

    group: str
    previous_slots: int
    new_slots: int
    reason: AllocationReason


class Shares:
    """Computes shares again only after a change of demand that can change them."""

    def __init__(self) -> None:
        self._virtual_time = VirtualTime()
        self._demands: dict[str, Demand] = {}
        self._shares: dict[str, Share] = {}
        self._slots = 0
        self._usable = 0
        """The slots that all groups together could use."""
        self._weights = 0.0
        self._small_changes = 0
        self.is_stale = True
        self.is_shared = False
        self.are_kept = False
        """True if demands are to be set: slots are shared, or were until the rules changed just now."""
        self._weights_changed = False
        self._drained: set[str] = set()
        self.changes: list[Reallocation] = []
        """Changes that have not been announced yet."""
        self.count_lent: Callable[[str, int], None] | None = None
        """Called with a group and the number of slots newly lent to it; None if metrics are off."""
        self._lent: dict[str, int] = {}

    def rules_changed(self, *, shared: bool, weights_changed: bool) -> None:
        self.is_stale = True
        self._weights_changed = self._weights_changed or weights_changed
        # Once slots are no longer shared, the shares by equal weights are computed and announced, and then kept as
        # they are: the next announcement of a group begins with what the last one said.
        self.are_kept = self.are_kept or shared or self.is_shared
        self.is_shared = shared

    def set_demand(self, group: str, demand: Demand | None, *, drained: bool = False) -> None:
        """Note the demand of a group; None removes it.

        ``drained`` is True if none of its tasks waits, not even one that is held back.
        """
        before = self._demands.get(group)
        if demand is None:
            self._demands.pop(group, None)
        else:
            self._demands[group] = demand
        if drained and before is not None:
            self._drained.add(group)
        elif not drained:
            self._drained.discard(group)
        if not self.is_stale:
            self.is_stale = self._matters(group, before, demand)
        self._usable += (demand.bound if demand else 0) - (before.bound if before else 0)

    def _matters(self, group: str, before: Demand | None, now: Demand | None) -> bool:
        """True if a changed demand can change shares. A demand above the group's share, before and after, cannot."""
        if before is not None and now is not None and before[2:] != now[2:]:
            return True
        if self._is_one_of_many(group, now):
            return (before is None or now is None) and self._note_small_change(group, now)
        if before is None or now is None:
            return True
        if before.bound == now.bound:
            return False
        least = min(before.bound, now.bound)
        return least <= self._shares[group].limit or self._usable + now.bound - before.bound < self._slots

    def _is_one_of_many(self, group: str, now: Demand | None) -> bool:
        """True if a group's share is so small that shares need not be computed at once when it comes or goes."""
        if len(self._demands) <= CROWD * self._slots or self._shares.get(group, NO_SHARE).limit > 1:
            return False
        return now is None or (now.min_slots == 0 and now.weight * self._slots < self._weights)

    def _note_small_change(self, group: str, now: Demand | None) -> bool:
        """Give a new group a provisional share; return True once enough has changed to compute shares again."""
        if now is not None and group not in self._shares:
            self._shares[group] = Share(0, now.weight / self._weights, 1, 0)
        self._small_changes += 1
        return self._small_changes * LEAST_CHANGE > len(self._demands)

    def compute(self, slots: int) -> bool:
        """Compute shares if a demand has changed; return True if they were computed."""
        if not self.is_stale:
            return False
        self._slots = slots
        before, self._shares = self._shares, allocate(slots, self._demands)
        self._usable = sum(demand.bound for demand in self._demands.values())
        self._weights = sum(demand.weight for demand in self._demands.values())
        self._small_changes = 0
        if self.count_lent is not None:
            self._count_lent(self.count_lent)
        for group in {**before, **self._shares}:
            old, new = before.get(group, NO_SHARE).slots, self._shares.get(group, NO_SHARE).slots
            if old != new:
                self.changes.append(Reallocation(group, old, new, self._reason(group, old, new)))
        self.is_stale = self._weights_changed = False
        self._drained.clear()
        self._virtual_time.forget_idle(self._demands)
        if not self.is_shared:
            # Demands are not kept current without shares, so old ones must not count when shares return.
            self._demands.clear()
            self._usable = 0
            self.are_kept = False
        return True

    def _count_lent(self, count: Callable[[str, int], None]) -> None:
        """Count each slot once when it is lent, not again while it stays lent."""
        before, self._lent = self._lent, lent(self._slots, self._demands, self._shares)
        for group, slots in self._lent.items():
            if (more := slots - before.get(group, 0)) > 0:
                count(group, more)

    def _reason(self, group: str, old: int, new: int) -> AllocationReason:
        if self._weights_changed:
            return "weight_change"
        return "group_drained" if new < old and group in self._drained else "rebalance"

    def key(self, group: str) -> tuple[bool, float] | None:
        """Return the group's rank, the lowest being next; None if the group already uses its whole share."""
        demand, share = self._demands[group], self._shares[group]
        if demand.running >= share.limit:
            return None
        return demand.running >= share.least, self._virtual_time.due(group)

    def started(self, group: str, *, by_share: bool) -> Charge:
        """Charge a group for a task that starts."""
        demand, share = self._demands[group], self._shares[group]
        if not by_share:
            return self._virtual_time.charge(group, demand.weight, self._weights, LEAST_MS)
        if demand.running >= share.least:
            return self._virtual_time.begin(group, demand.weight, self._weights)
        # Slots of a group's minimum are not charged.
        return Charge()

    def not_started(self, group: str, charge: Charge) -> None:
        """Take back the charge for a task that did not start after all."""
        self._virtual_time.take_back(group, charge)

    def ended(self, group: str, held_ms: int) -> None:
        """Charge a group for how long an ended task held its slot. Slots of a minimum are not charged."""
        demand, more = self._demands.get(group), held_ms - LEAST_MS
        if demand is not None and more > 0 and demand.running > self._shares.get(group, NO_SHARE).least:
            self._virtual_time.charge(group, demand.weight, self._weights, more)

    def copy_of_turns(self) -> VirtualTime:
        return deepcopy(self._virtual_time)

    def take_turns(self, turns: VirtualTime) -> None:
        """Continue with the turns of another dispatcher."""
        self._virtual_time = deepcopy(turns)

    def demands(self) -> dict[str, Demand]:
        """Return the demand of each group."""
        return dict(self._demands)

    def slots_of(self, group: str) -> int:
        return self._shares.get(group, NO_SHARE).slots

    def slots_by_group(self) -> dict[str, int]:
        """Return the share of each group that has work. Safe to call from any thread."""
        return {group: share.slots for group, share in self._shares.copy().items()}
