"""When recurring work is due: a grid of instants that never drifts.

Laws: every occurrence lies on the grid; they ascend, so that none comes twice; one that passed while the last was still
active, or while the series was paused, is skipped and never made up for.
"""

from __future__ import annotations

from typing import NamedTuple


class Occurrence(NamedTuple):
    """The next one, and how many before it are skipped."""

    due_at: int
    skipped: int


def next_occurrence(first_at: int, every: int, last_due: int, now: int) -> Occurrence:
    """The occurrence after ``last_due`` that has not passed at ``now``."""
    following = last_due + every
    if now > following:
        behind = -(-(now - first_at) // every)
        due_at = first_at + behind * every
    else:
        due_at = following
    return Occurrence(due_at, (due_at - following) // every)


def is_spent(runs: int, max_runs: int | None) -> bool:
    """Whether a series has had all its occurrences."""
    return max_runs is not None and runs >= max_runs
