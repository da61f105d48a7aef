"""How many slots each group may use: minimums first, the rest by weight, never more than a group can use.

Exact shares come first: a group gets its minimum, and of the rest its part by weight, up to its bound, which is its cap
or its demand; what a bounded group leaves goes to the others in proportion. Then shares are made whole: the largest
remainder is rounded up first, ties go to the lighter weight, then by name. Bounding before rounding, rather than
rounding anew each time a bounded group leaves something, is what keeps every group within one slot of its exact share.

Laws: all slots are given unless demand or caps are less; nobody gets more than cap or demand, or less than its minimum
while minimums fit; names decide nothing but ties; a group never loses by growing heavier. When minimums alone are more
than the slots, they are bounds: the slots are shared by weight up to the minimums, and who has none waits.

With more groups than slots whole shares would leave some groups with nothing for ever. Then a group may hold its exact
share rounded up, and :mod:`taskmill.policy.turns` sees to it that shares are right over time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple

from taskmill.model.cluster import Claim
from taskmill.model.group import Group


class Share(NamedTuple):
    """What a group gets."""

    slots: int
    """Its share in whole slots."""
    portion: float
    """Its exact share, as a part of all that is given: what it is due over time."""
    limit: int
    """How many slots it may hold at once: ``slots``, or the exact share rounded up where some would have none."""
    least: int
    """The minimum it is sure of at every moment."""


def is_shared(groups: Iterable[Group]) -> bool:
    """Whether slots are shared at all; else priority is global and groups take turns."""
    return any(group.has_share for group in groups)


def allocate(slots: int, claims: Mapping[str, Claim]) -> dict[str, Share]:
    """The share of each group. Cost grows with the groups, not with what they have waiting."""
    bounds = [claim.bound for claim in claims.values()]
    minimums = [min(claim.min_slots, bound) for claim, bound in zip(claims.values(), bounds, strict=True)]
    weights = _whole_weights(claims.values())
    if sum(minimums) > slots:
        minimums, bounds = [0] * len(bounds), minimums
    exact, parts = _exact_shares(slots, minimums, bounds, weights)

    total = min(slots, sum(bounds))
    spare = total - sum(whole for whole, _ in exact)
    by_remainder = nsmallest(spare, zip([-remainder for _, remainder in exact], weights, claims, strict=True))
    rounded_up = {name for _, _, name in by_remainder}
    scarce = any(
        not whole and claim.bound and name not in rounded_up
        for (name, claim), (whole, _) in zip(claims.items(), exact, strict=True)
    )
    shares: dict[str, Share] = {}
    for name, (whole, remainder), least in zip(claims, exact, minimums, strict=True):
        share = whole + (name in rounded_up)
        limit = whole + (remainder > 0) if scarce else share
        shares[name] = Share(share, (whole + remainder / parts) / total if total else 0.0, limit, least)
    return shares


def lent(slots: int, claims: Mapping[str, Claim], shares: Mapping[str, Share]) -> dict[str, int]:
    """For each group that has any, the slots of its share beyond what its minimum and weight alone give it.

    They are what others that have work could not use, for their caps or for want of tasks.
    """
    if all(shares[name].slots < claim.bound for name, claim in claims.items()):
        return {}
    alone = allocate(
        slots, {name: Claim(slots, 0, claim.weight, None, claim.min_slots) for name, claim in claims.items()}
    )
    return {name: share.slots - alone[name].slots for name, share in shares.items() if share.slots > alone[name].slots}


def _exact_shares(
    slots: int, minimums: Sequence[int], bounds: Sequence[int], weights: Sequence[int]
) -> tuple[list[tuple[int, int]], int]:
    """Whole slots and the remainder for each, and how many parts of a remainder make a slot.

    Those whose part reaches their bound leave the rest of it to the others, until none does.
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


def _whole_weights(claims: Iterable[Claim]) -> list[int]:
    """Weights in proportion, as ints. A float stands for the decimal that was written: 0.1 to 0.3 is 1 to 3."""
    given = [claim.weight for claim in claims]
    if all(weight == int(weight) for weight in given):
        return [int(weight) for weight in given]
    # Loaded when needed: it makes importing taskmill slower, and most weights are whole.
    from fractions import Fraction

    exact = [Fraction(str(weight)) for weight in given]
    scale = math.lcm(*{weight.denominator for weight in exact})
    return [int(weight * scale) for weight in exact]
