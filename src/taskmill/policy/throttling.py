"""Pressure: how hard pressed the machine is, and who waits because of it.

The pressure that counts is the highest of all sources. A limit holds back tasks of its priority and all less urgent
ones while the pressure is above it.

Laws: more pressure never holds fewer; a more urgent task is held only if all less urgent ones are; what is no number
is no pressure, so a broken source never stops work. With easing a limit, once in force, stays so until the pressure is
that much below it; without, what was before does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from taskmill.model.explanation import Hold
from taskmill.model.readings import Reading
from taskmill.model.throttle import Limit, ThrottlePolicy
from taskmill.policy.smoothing import clean_share

Throttle = frozenset[Limit]
"""The limits in force."""
UNTHROTTLED: Throttle = frozenset()


def aggregate(pressures: Iterable[object]) -> float:
    """The pressure that counts."""
    return max((clean_share(value) or 0.0 for value in pressures), default=0.0)


def bandwidth_pressure(reading: Reading, limit: float) -> float:
    """How much of the bandwidth that may be used is used, both ways together."""
    return min((reading.net_rx + reading.net_tx) / limit, 1.0)


def limits_in_force(policy: ThrottlePolicy, before: Throttle, pressure: float) -> Throttle:
    """The limits that hold tasks back at this pressure."""
    return frozenset(
        limit
        for limit in policy.by_urgency
        if pressure > limit.pressure or (limit in before and pressure > limit.pressure - policy.easing)
    )


def holding_limit(throttle: Throttle, effective: int) -> Limit | None:
    """The limit that holds a task of this effective priority, the last to ease if there are several."""
    return min(
        (limit for limit in throttle if effective >= limit.priority), key=lambda limit: limit.pressure, default=None
    )


def held_from(throttle: Throttle) -> int | None:
    """The priority from which on all are held, for whoever has many tasks to compare; ``None``: nobody is."""
    return min((limit.priority for limit in throttle), default=None) if throttle else None


def makes_way(policy: ThrottlePolicy, effective: int, pressure: float) -> bool:
    """Whether a running task of this effective priority is asked to pause."""
    if policy.preempt_above is None or pressure <= policy.preempt_above:
        return False
    return any(effective >= limit.priority and pressure > limit.pressure for limit in policy.by_urgency)


def stays_away(policy: ThrottlePolicy, before: bool, pressure: float) -> bool:
    """Whether tasks make way at this pressure, and those that did stay away; ``before`` is whether they did so far."""
    if policy.preempt_above is None or policy.resume_below is None:
        return False
    return pressure > (policy.resume_below if before else policy.preempt_above)


def pressure_hold(limit: Limit, easing: float, pressures: Mapping[str, float]) -> Hold:
    """What ``explain`` says of a task that this limit holds."""
    highest = max(pressures, key=lambda name: pressures[name], default="no source")
    pressure = pressures.get(highest, 0.0)
    until = f"until it is at most {limit.pressure:.2f}"
    if pressure <= limit.pressure:
        until = f"until it is at most {max(limit.pressure - easing, 0):.2f}, having been above {limit.pressure:.2f}"
    who = f"tasks of priority {limit.priority} or less urgent"
    return Hold("pressure", f"the pressure is {pressure:.2f} ({highest}), and {who} wait {until}")
