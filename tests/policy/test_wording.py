"""Durations in sentences are written as the command line writes them."""

from __future__ import annotations

import pytest

from taskmill.cli import text
from taskmill.policy.wording import span_text


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
