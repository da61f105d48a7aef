"""Compute the delay before a retry.

Laws: a delay is never negative and never above ``maximum``; without jitter it never shrinks as retries grow.
"""

from __future__ import annotations

from taskmill.model.durations import LONGEST_MS
from taskmill.model.settings import Retry


def retry_delay_ms(retry: Retry, retries_so_far: int, random: float = 1.0) -> int:
    """Return the delay before retry number ``retries_so_far + 1``; ``random`` in [0, 1] is used for jitter only."""
    match retry.shape:
        case "constant":
            delay = retry.initial_ms
        case "linear":
            delay = min(retry.initial_ms + retries_so_far * retry.increment_ms, retry.maximum_ms)
        case "exponential":
            delay = _grown(retry, retries_so_far)
    return int(delay * random) if retry.jitter else delay


def _grown(retry: Retry, retries_so_far: int) -> int:
    try:
        grown = retry.initial_ms * retry.factor**retries_so_far
    except OverflowError:
        grown = LONGEST_MS if retry.initial_ms else 0
    return int(min(grown, retry.maximum_ms))
