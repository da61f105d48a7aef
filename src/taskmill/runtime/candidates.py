"""Tasks on their way from the queue to a slot: the next of a group, and one that is about to start."""

from __future__ import annotations

from typing import NamedTuple

from taskmill.model.io_budget import IoBudget
from taskmill.model.stages import Lane, Place


class Candidate(NamedTuple):
    """The task that a group would start next; smaller is sooner."""

    effective: int
    queued_at: int
    place_id: int
    lane: Lane
    place: Place


class Pick(NamedTuple):
    """A task about to start."""

    id: int
    group: str
    type: str
    effective: int
    lane: Lane
    place: Place
    budget: IoBudget | None = None
    """What it is expected to move."""
    by_turn: bool = True
    """Whether it starts because of the share of its group, or is so urgent that it passes over shares."""
