"""Rank waiting tasks: the most urgent first, then the longest waiting, then the lowest place id."""

from __future__ import annotations

from taskmill.model.task import Lane, Place

Rank = tuple[int, int, int]

MOST_IN_SIGHT = 65_536
LARGEST_FRONT = 512
SMALLEST_FRONT = 32


def front_size(lanes: int) -> int:
    """Return how many places of each lane to keep in memory, so that memory is bounded for any number of lanes."""
    return max(SMALLEST_FRONT, min(LARGEST_FRONT, MOST_IN_SIGHT // max(lanes, 1)))


def rank(lane: Lane, place: Place) -> Rank:
    """Return the rank of a place in its lane; smaller runs sooner."""
    return lane.urgency, place.queued_at, place.place_id
