"""Picking: which of the tasks in sight start next."""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace

from taskmill.policy.ranking import rank
from taskmill.runtime.glimpse import Glimpse


def pick(glimpse: Glimpse, slots: int) -> list[int]:
    """Take the next tasks to start out of the glimpse, at most ``slots``, in their order."""
    if slots <= 0:
        return []
    heads = glimpse.heads()
    if len(heads) == 1:
        places = glimpse.lanes[heads[0][0]].places
        taken = [place.id for place in places[:slots]]
        del places[:slots]
        return taken
    ranked = [(rank(lane, place), lane) for lane, place in heads]
    heapify(ranked)
    picked: list[int] = []
    while ranked and len(picked) < slots:
        _, lane = ranked[0]
        picked.append(glimpse.take(lane).id)
        known = glimpse.lanes[lane]
        if known.places:
            heapreplace(ranked, (rank(lane, known.places[0]), lane))
        elif known.complete:
            heappop(ranked)
        else:
            # More of this lane waits on disk, perhaps more urgent than the rest: read before going on.
            break
    return picked
