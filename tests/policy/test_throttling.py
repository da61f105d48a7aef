"""Laws of pressure and throttling."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmill import Priority
from taskmill.model.machine import Limit, Reading, ThrottlePolicy
from taskmill.policy.pressure import (
    UNTHROTTLED,
    aggregate,
    bandwidth_pressure,
    held_from,
    holding_limit,
    limits_in_force,
    makes_way,
    pressure_hold,
    stays_away,
)

shares = st.floats(0, 1)
priorities = st.integers(0, 255)


@st.composite
def policies(draw: st.DrawFn) -> ThrottlePolicy:
    levels = sorted(draw(st.sets(priorities, max_size=4)), reverse=True)
    limits = sorted(draw(st.lists(shares, min_size=len(levels), max_size=len(levels))))
    above = draw(st.none() | shares)
    return ThrottlePolicy(list(zip(levels, limits, strict=True)), preempt_above=above, easing=draw(shares))


@pytest.mark.parametrize(
    ("pressure", "held"),
    [
        (0.0, []),
        (0.50, []),
        (0.51, [Priority.LOW, Priority.IDLE]),
        (0.75, [Priority.LOW, Priority.IDLE]),
        (0.76, [Priority.NORMAL, Priority.LOW, Priority.IDLE]),
        (1.0, [Priority.NORMAL, Priority.LOW, Priority.IDLE]),
    ],
)
def test_by_default_low_waits_above_half_normal_above_three_quarters_and_others_never(
    pressure: float, held: list[Priority]
) -> None:
    throttle = limits_in_force(ThrottlePolicy(), UNTHROTTLED, pressure)
    assert [level for level in sorted(Priority) if holding_limit(throttle, level)] == held


@given(policies(), shares, shares, priorities)
def test_more_pressure_never_holds_fewer(policy: ThrottlePolicy, one: float, other: float, effective: int) -> None:
    lower, higher = sorted((one, other))
    if holding_limit(limits_in_force(policy, UNTHROTTLED, lower), effective):
        assert holding_limit(limits_in_force(policy, UNTHROTTLED, higher), effective)


@given(policies(), st.lists(shares), priorities, priorities)
def test_a_more_urgent_task_is_held_only_if_all_less_urgent_ones_are(
    policy: ThrottlePolicy, pressures: list[float], one: int, other: int
) -> None:
    throttle = UNTHROTTLED
    for pressure in pressures:
        throttle = limits_in_force(policy, throttle, pressure)
        if holding_limit(throttle, min(one, other)):
            assert holding_limit(throttle, max(one, other))
        first = held_from(throttle)
        assert (holding_limit(throttle, one) is not None) == (first is not None and one >= first)


@given(policies(), shares, shares, priorities)
def test_without_easing_what_was_before_does_not_matter(
    policy: ThrottlePolicy, before: float, now: float, effective: int
) -> None:
    exact = ThrottlePolicy(policy.limits)
    throttle = limits_in_force(exact, limits_in_force(exact, UNTHROTTLED, before), now)
    held = any(effective >= limit.priority and now > limit.pressure for limit in exact.by_urgency)
    assert (holding_limit(throttle, effective) is not None) == held


@given(policies(), shares, st.lists(shares))
def test_with_easing_a_limit_holds_until_the_pressure_is_well_below_it(
    policy: ThrottlePolicy, first: float, pressures: list[float]
) -> None:
    throttle = limits_in_force(policy, UNTHROTTLED, first)
    for pressure in pressures:
        after = limits_in_force(policy, throttle, pressure)
        for limit in policy.by_urgency:
            if pressure > limit.pressure:
                assert limit in after
            elif pressure <= limit.pressure - policy.easing or limit not in throttle:
                assert limit not in after
            else:
                assert limit in after
        throttle = after


def test_a_pressure_that_hovers_at_the_limit_does_not_start_and_stop_tasks() -> None:
    policy, throttle, held = ThrottlePolicy([(Priority.LOW, 0.5)], easing=0.1), UNTHROTTLED, []
    for pressure in (0.49, 0.51, 0.49, 0.51, 0.41, 0.40, 0.49):
        throttle = limits_in_force(policy, throttle, pressure)
        held.append(holding_limit(throttle, Priority.LOW) is not None)
    assert held == [False, True, True, True, True, False, False]


@given(st.lists(st.floats() | st.none() | st.text(), max_size=5))
def test_the_highest_pressure_counts_and_nonsense_does_not(said: list[object]) -> None:
    sensible = [min(v, 1.0) for v in said if isinstance(v, float) and 0 <= v < math.inf]
    assert aggregate(said) == max(sensible, default=0.0)


@given(policies(), shares, priorities)
def test_no_task_is_preempted_for_a_pressure_at_which_it_would_start(
    policy: ThrottlePolicy, pressure: float, effective: int
) -> None:
    if makes_way(policy, effective, pressure):
        throttle = limits_in_force(policy, UNTHROTTLED, pressure)
        assert holding_limit(throttle, effective) is not None
        assert stays_away(policy, False, pressure)
    if policy.preempt_above is None:
        assert not makes_way(policy, effective, pressure)


def test_preempted_tasks_return_with_a_gap() -> None:
    policy = ThrottlePolicy(preempt_above=0.9, resume_below=0.6)
    assert makes_way(policy, Priority.NORMAL, 0.91)
    assert not makes_way(policy, Priority.HIGH, 1.0)
    away, seen = False, []
    for pressure in (0.7, 0.9, 0.91, 0.9, 0.61, 0.6, 0.7, 0.9):
        away = stays_away(policy, away, pressure)
        seen.append(away)
    assert seen == [False, False, True, True, True, False, False, False]
    assert not stays_away(ThrottlePolicy(), True, 1.0)


@given(st.floats(0, 1e12), st.floats(0, 1e12), st.floats(1, 1e12))
def test_bandwidth_pressure_is_the_used_part_of_the_limit(rx: float, tx: float, limit: float) -> None:
    pressure = bandwidth_pressure(Reading(net_rx=rx, net_tx=tx), limit)
    assert 0 <= pressure <= 1
    assert pressure == pytest.approx(min((rx + tx) / limit, 1))


def test_a_hold_says_the_numbers() -> None:
    hold = pressure_hold(Limit(192, 0.5), 0.1, {"cpu": 0.4, "disk": 0.8})
    assert hold.reason == "pressure"
    assert hold.detail == (
        "the pressure is 0.80 (disk), and tasks of priority 192 or less urgent wait until it is at most 0.50"
    )
    eased = pressure_hold(Limit(192, 0.5), 0.1, {"cpu": 0.45})
    assert eased.detail.endswith("until it is at most 0.40, because it was above 0.50")
    assert "0.00 (no source)" in pressure_hold(Limit(192, 0.5), 0.1, {}).detail
