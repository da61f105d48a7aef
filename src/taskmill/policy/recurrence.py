"""When recurring work is due: beats one interval apart, which never drift and never stall.

A beat is an instant at which an occurrence is due. The length of the interval is what counts, so beats move with a step
of the wall clock (decision 0024). A step that was not noticed, because nothing ran, is found by evidence: an instant in
the future at which something has already happened.

Laws: beats are one interval apart; each is made or skipped once, in ascending order; a beat that comes while the last
occurrence is active, or while the series is paused, is skipped and never made up for; whatever the clock does, the next
occurrence is at most as far away as it was when it was made.
"""

from __future__ import annotations

from typing import NamedTuple

CLOCK_STEP_MS = 1000
"""Smaller differences between two clocks are drift, not steps."""


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


def beats_passed(every: int, last_due: int, now: int) -> Occurrence:
    """The latest beat that has come while the occurrence of ``last_due`` was active, and how many there were."""
    count = max(0, (now - last_due) // every)
    return Occurrence(last_due + count * every, count)


def put_back_by(happened_at: int, now: int) -> int:
    """By how much the wall clock was put back at least, given an instant of the past: 0 if there is no proof."""
    return happened_at - now if happened_at - now >= CLOCK_STEP_MS else 0


def is_spent(runs: int, max_runs: int | None) -> bool:
    """True if a series has had all its occurrences."""
    return max_runs is not None and runs >= max_runs
