"""Which waiting task is next: the most urgent, then the longest waiting, then the lowest id."""

from __future__ import annotations

from taskmill.model.stages import Lane, Place

Rank = tuple[int, int, int]


def rank(lane: Lane, place: Place) -> Rank:
    """Smaller is sooner."""
    return lane.urgency, place.queued_at, place.id
