"""Compute how many slots each group may use: minimums first, the rest by weight, never more than a group can use.

Exact shares are computed first. A group gets its minimum plus its part of the rest by weight, up to its bound, the
smaller of cap and demand. Slots that a bounded group leaves go to the others in proportion. Then shares are rounded to
whole slots: the largest remainder first, ties to the lighter weight, then by name. Applying the bounds before rounding
keeps every group within one slot of its exact share; rounding after each bounded group would not.

Laws: all slots are assigned unless demand or caps are smaller; no group gets more than its cap or demand, or less than
its minimum while the minimums fit; names decide ties only; a group never loses slots by gaining weight. If the minimums
exceed the slots, they become bounds: the slots are shared by weight up to the minimums, and groups without a minimum
wait.

With more groups than slots, whole shares would starve some groups. Then a group may hold its exact share rounded up,
and :mod:`taskmill.policy.fair_queue` makes the shares right over time.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple

from taskmill.model.cluster import Demand
from taskmill.model.settings import Group


class Share(NamedTuple):
    """The share of one group."""

    slots: int
    """Its share in whole slots."""
    portion: float
    """Its exact share as a fraction of all assigned slots, which it gets over time."""
    limit: int
    """How many slots it may hold at once: ``slots`` or, if some group would have none, the exact share rounded up."""
    least: int
    """Its guaranteed minimum."""


NO_SHARE = Share(0, 0.0, 0, 0)


def is_shared(groups: Iterable[Group]) -> bool:
    """True if slots are shared between groups; otherwise priority is global and equally urgent groups take turns."""
    return any(group.has_share for group in groups)


def allocate(slots: int, demands: Mapping[str, Demand]) -> dict[str, Share]:
    """Return the share of each group. The cost grows with the number of groups, not with that of waiting tasks."""
    bounds = [demand.bound for demand in demands.values()]
    minimums = [min(demand.min_slots, bound) for demand, bound in zip(demands.values(), bounds, strict=True)]
    weights = _whole_weights(demands.values())
    if sum(minimums) > slots:
        minimums, bounds = [0] * len(bounds), minimums
    exact, parts = _exact_shares(slots, minimums, bounds, weights)

    total = min(slots, sum(bounds))
    spare = total - sum(whole for whole, _ in exact)
    by_remainder = nsmallest(spare, zip([-remainder for _, remainder in exact], weights, demands, strict=True))
    rounded_up = {name for _, _, name in by_remainder}
    scarce = any(
        not whole and demand.bound and name not in rounded_up
        for (name, demand), (whole, _) in zip(demands.items(), exact, strict=True)
    )
    shares: dict[str, Share] = {}
    for name, (whole, remainder), least in zip(demands, exact, minimums, strict=True):
        share = whole + (name in rounded_up)
        limit = whole + (remainder > 0) if scarce else share
        shares[name] = Share(share, (whole + remainder / parts) / total if total else 0.0, limit, least)
    return shares


def lent(slots: int, demands: Mapping[str, Demand], shares: Mapping[str, Share]) -> dict[str, int]:
    """Return the slots that each group got beyond its minimum and weight, for groups that got any.

    Other groups with work left them unused, because of their caps or for lack of tasks.
    """
    if all(shares[name].slots < demand.bound for name, demand in demands.items()):
        return {}
    alone = allocate(
        slots, {name: Demand(slots, 0, demand.weight, None, demand.min_slots) for name, demand in demands.items()}
    )
    return {name: share.slots - alone[name].slots for name, share in shares.items() if share.slots > alone[name].slots}


def _exact_shares(
    slots: int, minimums: Sequence[int], bounds: Sequence[int], weights: Sequence[int]
) -> tuple[list[tuple[int, int]], int]:
    """Return whole slots and a remainder for each group, and how many units of remainder make a slot.

    Groups whose part reaches their bound leave the rest to the others; this repeats until no group does.
    """
    exact = [(bound, 0) for bound in bounds]
    rest = slots - sum(minimums)
    unbounded = [at for at, bound in enumerate(bounds) if bound > minimums[at]]
    while True:
        parts = sum(weights[at] for at in unbounded)
        within = [at for at in unbounded if rest * weights[at] < (bounds[at] - minimums[at]) * parts]
        if len(within) == len(unbounded):
            break
        rest -= sum(bounds[at] - minimums[at] for at in set(unbounded).difference(within))
        unbounded = within
    for at in unbounded:
        whole, remainder = divmod(rest * weights[at], parts)
        exact[at] = (minimums[at] + whole, remainder)
    return exact, max(parts, 1)


def _whole_weights(demands: Iterable[Demand]) -> list[int]:
    """Scale weights to ints in the same proportion. A float counts as the decimal it prints: 0.1 to 0.3 is 1 to 3."""
    given = [demand.weight for demand in demands]
    if all(weight == int(weight) for weight in given):
        return [int(weight) for weight in given]
    # Imported here because it slows down importing taskmill, and most weights are whole.
    from fractions import Fraction

    exact = [Fraction(str(weight)) for weight in given]
    scale = math.lcm(*{weight.denominator for weight in exact})
    return [int(weight * scale) for weight in exact]
