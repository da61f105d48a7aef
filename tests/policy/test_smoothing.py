"""Laws of smoothed readings."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmill.model.machine import HIGHEST_RATE, Reading
from taskmill.policy.pressure import ALPHA, clean_rate, clean_share, smoothed

shares = st.floats(0, 1)
rates = st.floats(0, HIGHEST_RATE)
readings = st.builds(Reading, shares, rates, rates, rates, rates, st.none() | shares)
numbers = st.floats() | st.none() | st.integers() | st.just(10**400)
anything = numbers | st.text()
# A rate given as a text is a size, or it is refused when the reading is created.
wild = st.builds(Reading, anything, numbers, numbers, numbers, numbers, anything)


def _values(reading: Reading) -> list[float]:
    busy = [] if reading.disk_busy is None else [reading.disk_busy]
    return [reading.cpu, *reading.rates, *busy]


@given(readings)
def test_the_first_reading_is_taken_as_it_is(reading: Reading) -> None:
    assert smoothed(None, reading) == reading


@given(readings, readings)
def test_a_smoothed_value_lies_between_the_one_before_and_the_reading(before: Reading, now: Reading) -> None:
    result = smoothed(before, now)
    for old, new, value in zip(_values(before)[:5], _values(now)[:5], _values(result)[:5], strict=True):
        assert min(old, new) <= value <= max(old, new)
        assert value == pytest.approx(ALPHA * new + (1 - ALPHA) * old)


@given(readings)
def test_a_steady_machine_has_a_steady_reading(reading: Reading) -> None:
    assert smoothed(reading, reading) == reading


@given(st.lists(wild, max_size=10))
def test_whatever_a_sampler_says_the_result_makes_sense(said: list[Reading]) -> None:
    result = None
    for reading in said:
        result = smoothed(result, reading)
        assert all(math.isfinite(value) for value in _values(result))
        assert 0 <= result.cpu <= 1
        assert all(0 <= rate <= HIGHEST_RATE for rate in result.rates)
        assert result.disk_busy is None or 0 <= result.disk_busy <= 1


@given(readings, st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 1e300]))
def test_impossible_readings_change_nothing(before: Reading, wrong: float) -> None:
    assert smoothed(before, Reading(math.nan, wrong, wrong, wrong, wrong, before.disk_busy)) == before


def test_a_share_above_one_is_one() -> None:
    assert clean_share(1.7) == 1
    assert clean_share(math.inf) is None
    assert clean_rate(2.0**51) is None
    assert clean_rate(True) is None


def test_a_reading_counts_for_thirty_percent() -> None:
    before = smoothed(None, Reading(0.0, disk_read=100.0))
    assert smoothed(before, Reading(1.0, disk_read=200.0)) == Reading(0.3, disk_read=130.0)
