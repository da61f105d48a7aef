"""Compute when recurring work is due: at beats one interval apart, which never drift and never stall.

A beat is an instant at which an occurrence is due. The interval is real time, so beats move with a step of the wall
clock (decision 0024). A step back while no scheduler runs is detected later: the stored instant of a past event then
lies in the future.

Laws: beats are one interval apart; each becomes an occurrence or is skipped, in ascending order; a beat that comes
while the last occurrence is active, or while the series is paused, is skipped and never made up for; whatever the clock
does, the wait for the next occurrence never grows.
"""

from typing import NamedTuple

CLOCK_STEP_MS = 1000
"""Smaller differences between two clocks are drift, not steps."""


class Occurrence(NamedTuple):
    """The next due instant, and the number of beats skipped before it."""

    due_at: int
    skipped: int


def next_occurrence(first_at: int, every: int, last_due: int, now: int) -> Occurrence:
    """Return the first occurrence after ``last_due`` that has not passed at ``now``."""
    following = last_due + every
    if now > following:
        behind = -(-(now - first_at) // every)
        due_at = first_at + behind * every
    else:
        due_at = following
    return Occurrence(due_at, (due_at - following) // every)


def beats_passed(every: int, last_due: int, now: int) -> Occurrence:
    """Return the latest beat that came while the occurrence of ``last_due`` was active, and how many came."""
    count = max(0, (now - last_due) // every)
    return Occurrence(last_due + count * every, count)


def put_back_by(happened_at: int, now: int) -> int:
    """Return the least step back of the wall clock that a past instant proves; 0 if it proves none."""
    return happened_at - now if happened_at - now >= CLOCK_STEP_MS else 0


def is_spent(runs: int, max_runs: int | None) -> bool:
    """True if a series has had all its occurrences."""
    return max_runs is not None and runs >= max_runs
