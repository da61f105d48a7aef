"""Durations in sentences are written as the command line writes them."""

from __future__ import annotations

import pytest

from taskmill.cli import text
from taskmill.model.durations import from_ms, optional_from_ms
from taskmill.model.looking_ahead import Range
from taskmill.policy.wording import expected_text, rough_text, span_text
from taskmill.simulation.explaining import _likely


@pytest.mark.parametrize(
    ("ms", "written"),
    [
        (0, "0 s"),
        (250, "0.25 s"),
        (1_500, "1.5 s"),
        (59_940, "59.9 s"),
        (59_960, "1 min"),
        (72_000, "1 min 12 s"),
        (352_000, "5 min 52 s"),
        (3_599_600, "1 h"),
        (5_400_000, "1 h 30 min"),
        (100_000_000, "1 d 3 h"),
        (30 * 86_400_000, "30 d"),
    ],
)
def test_a_duration_is_written_in_its_two_largest_units(ms: int, written: str) -> None:
    assert span_text(ms) == written


@pytest.mark.parametrize("ms", [60_000, 90_000, 352_499, 7_199_999, 200_000_000])
def test_from_a_minute_on_it_is_the_text_of_the_command_line(ms: int) -> None:
    assert span_text(ms) == text.duration(ms / 1000)


@pytest.mark.parametrize(
    ("ms", "written"),
    [
        (3, "0.1 s"),
        (753, "0.8 s"),
        (6_000, "6 s"),
        (9_940, "9.9 s"),
        (9_960, "10 s"),
        (45_678, "46 s"),
        (90_400, "1 min 30 s"),
    ],
)
def test_an_estimate_has_tenths_of_a_second_at_most(ms: int, written: str) -> None:
    assert rough_text(ms) == written


@pytest.mark.parametrize(
    ("at", "written"),
    [(0, "now"), (-5, "now"), (753, "in 0.8 s"), (12_400, "in 12 s (1970-01-01 00:00:12 UTC)")],
)
def test_the_instant_of_an_estimate_is_given_where_it_says_more(at: int, written: str) -> None:
    assert expected_text(at, 0) == written


@pytest.mark.parametrize(
    ("low", "middle", "high", "written"),
    [
        (733, 753, 835, ", most likely between 0.7 s and 0.8 s from now"),
        (0, 753, 835, ", most likely between now and 0.8 s from now"),
        (790, 800, 840, ""),
        (60_000, 61_000, 62_000, ""),
        (60_000, 90_000, 400_000, ", most likely between 1 min and 6 min 40 s from now"),
        (60_000, 90_000, None, ", most likely 1 min from now or much later"),
        (0, 90_000, None, ", most likely now or much later"),
    ],
)
def test_the_range_of_an_estimate_is_a_sentence(low: int, middle: int, high: int | None, written: str) -> None:
    start = Range(from_ms(low), from_ms(middle), optional_from_ms(high))
    assert _likely(start, 0) == written
