"""Throttle tasks by priority while the machine is under pressure.

The pressure is the highest value of all sources, from 0 to 1. A limit holds back tasks of its priority and all less
urgent tasks while the pressure is above it.

Laws: more pressure never holds fewer tasks; a task is held only if all less urgent tasks are; a value that is not a
number counts as no pressure, so a broken source never stops work. With easing, a limit in force stays in force until
the pressure has fallen that much below it; without easing, the past does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from taskmill.model.explanation import Hold
from taskmill.model.machine import Limit, Reading, ThrottlePolicy
from taskmill.policy.smoothing import clean_share

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
    """Return the limit that holds a task of this effective priority; of several, the last one to be lifted."""
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
    """True if tasks are preempted at this pressure and preempted tasks do not return; ``before`` is the last answer."""
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
