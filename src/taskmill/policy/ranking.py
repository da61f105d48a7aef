"""Which waiting task is next: the most urgent, then the longest waiting, then the lowest id of a place."""

from __future__ import annotations

from taskmill.model.stages import Lane, Place

Rank = tuple[int, int, int]

MOST_IN_SIGHT = 65_536
LARGEST_FRONT = 512
SMALLEST_FRONT = 32


def front_size(lanes: int) -> int:
    """How many places of each lane are kept in sight, so that memory stays flat however many lanes there are."""
    return max(SMALLEST_FRONT, min(LARGEST_FRONT, MOST_IN_SIGHT // max(lanes, 1)))


def rank(lane: Lane, place: Place) -> Rank:
    """Smaller is sooner."""
    return lane.urgency, place.queued_at, place.place_id
