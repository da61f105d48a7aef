"""Readings over time: each counts for 30 %, what was seen before for the rest.

Laws: the first reading is taken as it is; a smoothed value lies between the one before and the reading; what cannot be
true (NaN, infinite, negative, more than any machine moves) changes nothing; a share above 1 is 1.
"""

from __future__ import annotations

import math

from taskmill.model.readings import HIGHEST_RATE, Reading

ALPHA = 0.3


def smoothed(before: Reading | None, now: Reading) -> Reading:
    """The reading that counts from now on."""
    last = before or Reading()
    busy = None if now.disk_busy is None else blend(last.disk_busy, clean_share(now.disk_busy))
    disk_read, disk_write, net_rx, net_tx = (
        blend(old if before else None, clean_rate(new)) for old, new in zip(last.rates, now.rates, strict=True)
    )
    cpu = blend(last.cpu if before else None, clean_share(now.cpu))
    return Reading(cpu, disk_read, disk_write, net_rx, net_tx, busy)


def blend(before: float | None, now: float | None) -> float:
    """One value smoothed; ``None``: there is none, before or now."""
    if now is None:
        return 0.0 if before is None else before
    if before is None:
        return now
    # By way of the difference, so that rounding never leaves the span between the two.
    return min(max(before + ALPHA * (now - before), min(before, now)), max(before, now))


def clean_share(value: object) -> float | None:
    """A number from 0 to 1; ``None`` if it is no such thing."""
    number = _number(value)
    return None if number is None or number < 0 or number == float("inf") else min(number, 1.0)


def clean_rate(value: object) -> float | None:
    """Bytes per second; ``None`` if that cannot be."""
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
