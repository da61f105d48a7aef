"""Smooth readings of the machine, and throttle tasks by priority while it is under pressure.

Readings are smoothed with an exponentially weighted moving average (alpha 0.3). The pressure is the highest value of
all sources, from 0 to 1. A limit holds back tasks of its priority and all less urgent tasks while the pressure is above
it.

Laws of smoothing: the first reading is taken as it is; a smoothed value lies between the previous value and the
reading; an impossible reading (NaN, infinite, negative, more than any machine moves) changes nothing; a share above 1
counts as 1.

Laws of throttling: more pressure never holds fewer tasks; a task is held only if all less urgent tasks are; a value
that is not a number counts as no pressure, so a broken source never stops work. With easing, a limit in force stays in
force until the pressure has fallen that much below it; without easing, the past does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from taskmill.model.explanation import Hold
from taskmill.model.machine import HIGHEST_RATE, Limit, Reading, ThrottlePolicy

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
    # Clamped, because rounding must not move the result out of the range between the two values.
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


Throttle = frozenset[Limit]
"""The limits in force."""
UNTHROTTLED: Throttle = frozenset()


def aggregate(pressures: Iterable[object]) -> float:
    """Return the highest of the pressures, ignoring values that are not numbers."""
    return max((clean_share(value) or 0.0 for value in pressures), default=0.0)


def bandwidth_pressure(reading: Reading, limit: float) -> float:
    """Return the share of the allowed bandwidth in use, received and sent bytes together."""
    return min((reading.net_rx + reading.net_tx) / limit, 1.0)


def limits_in_force(policy: ThrottlePolicy, before: Throttle, pressure: float) -> Throttle:
    """Return the limits that hold tasks back at this pressure."""
    return frozenset(
        limit
        for limit in policy.by_urgency
        if pressure > limit.pressure or (limit in before and pressure > limit.pressure - policy.easing)
    )


def holding_limit(throttle: Throttle, effective: int) -> Limit | None:
    """Return the limit that holds a task of this effective priority; of several, the one that is lifted last."""
    return min(
        (limit for limit in throttle if effective >= limit.priority), key=lambda limit: limit.pressure, default=None
    )


def held_from(throttle: Throttle) -> int | None:
    """Return the priority from which on all tasks are held; ``None`` if no task is."""
    return min((limit.priority for limit in throttle), default=None) if throttle else None


def makes_way(policy: ThrottlePolicy, effective: int, pressure: float) -> bool:
    """True if a running task of this effective priority is preempted because of pressure."""
    if policy.preempt_above is None or pressure <= policy.preempt_above:
        return False
    return any(effective >= limit.priority and pressure > limit.pressure for limit in policy.by_urgency)


def stays_away(policy: ThrottlePolicy, before: bool, pressure: float) -> bool:
    """True if preempted tasks stay paused at this pressure; ``before`` is the previous answer."""
    if policy.preempt_above is None or policy.resume_below is None:
        return False
    return pressure > (policy.resume_below if before else policy.preempt_above)


def pressure_hold(limit: Limit, easing: float, pressures: Mapping[str, float]) -> Hold:
    """Return the hold that ``explain`` shows for a task held by this limit."""
    highest = max(pressures, key=lambda name: pressures[name], default="no source")
    pressure = pressures.get(highest, 0.0)
    until = f"until it is at most {limit.pressure:.2f}"
    if pressure <= limit.pressure:
        until = f"until it is at most {max(limit.pressure - easing, 0):.2f}, because it was above {limit.pressure:.2f}"
    who = f"tasks of priority {limit.priority} or less urgent"
    return Hold("pressure", f"the pressure is {pressure:.2f} ({highest}), and {who} wait {until}")
