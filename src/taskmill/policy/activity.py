"""Times of ended tasks as percentiles, and the curve of a waiting task's effective priority."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from taskmill.model.settings import Aging
from taskmill.policy.aging import effective_priority, next_step_ms

MOST_STEPS = 300


def percentile(values: Sequence[int], share: float) -> int | None:
    """Return the smallest value that at least ``share`` of the values do not exceed; None without values."""
    if not values:
        return None
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def known(values: Iterable[int | None]) -> list[int]:
    """Return the values that are known; a clock that was put back makes them zero, not negative."""
    return [max(0, value) for value in values if value is not None]


def priority_steps(aging: Aging | None, base: int) -> list[tuple[int, int]]:
    """Return ``(waited_ms, effective priority)`` for each change of the effective priority, beginning with no wait."""
    steps = [(0, base)]
    waited = None if aging is None else next_step_ms(aging, base, 0)
    while aging is not None and waited is not None and len(steps) < MOST_STEPS:
        steps.append((waited, effective_priority(aging, base, waited)))
        waited = next_step_ms(aging, base, waited)
    return steps
