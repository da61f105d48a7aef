"""Smooth readings over time with an exponentially weighted moving average (alpha 0.3).

Laws: the first reading is taken as it is; a smoothed value lies between the previous value and the reading; an
impossible reading (NaN, infinite, negative, more than any machine moves) changes nothing; a share above 1 counts as 1.
"""

from __future__ import annotations

import math

from taskmill.model.machine import HIGHEST_RATE, Reading

ALPHA = 0.3


def smoothed(before: Reading | None, now: Reading) -> Reading:
    """Return the smoothed reading after ``now``; ``before`` is the previous smoothed reading."""
    last = before or Reading()
    busy = None if now.disk_busy is None else blend(last.disk_busy, clean_share(now.disk_busy))
    disk_read, disk_write, net_rx, net_tx = (
        blend(old if before else None, clean_rate(new)) for old, new in zip(last.rates, now.rates, strict=True)
    )
    cpu = blend(last.cpu if before else None, clean_share(now.cpu))
    return Reading(cpu, disk_read, disk_write, net_rx, net_tx, busy)


def blend(before: float | None, now: float | None) -> float:
    """Smooth one value; ``None`` means that there is no value."""
    if now is None:
        return 0.0 if before is None else before
    if before is None:
        return now
    # Clamped, because rounding must not leave the span between the two.
    return min(max(before + ALPHA * (now - before), min(before, now)), max(before, now))


def clean_share(value: object) -> float | None:
    """Return ``value`` as a number from 0 to 1; ``None`` if it is not a share."""
    number = _number(value)
    return None if number is None or number < 0 or number == float("inf") else min(number, 1.0)


def clean_rate(value: object) -> float | None:
    """Return ``value`` as bytes per second; ``None`` if it is not a possible rate."""
    number = _number(value)
    return number if number is not None and 0 <= number <= HIGHEST_RATE else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return None if math.isnan(number) else number
