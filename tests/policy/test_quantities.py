"""Durations and sizes as text: one parser for the API and the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmill import Aging, ConfigError, IoBudget, RateLimit, Retention, Retry
from taskmill.cli import quantities
from taskmill.model.durations import elapsed, milliseconds, size
from taskmill.model.machine import checked_bandwidth


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("250ms", 250),
        ("10s", 10_000),
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("1.5h", 5_400_000),
        ("0s", 0),
        ("0.5ms", 1),
        (" 1h 30m ", 5_400_000),
        ("10 Minutes", 600_000),
    ],
)
def test_a_duration_may_be_a_text(text: str, ms: int) -> None:
    assert milliseconds(text, "ttl") == ms
    assert quantities.duration(text, "--for") == timedelta(milliseconds=ms)


@pytest.mark.parametrize(
    "text",
    [
        *("", "10", "m", "10x", "-5s", "+5s", "1e3s", "1h-30m", "10m!", "nan", "infs", "٣s", "1,5h", "9" * 30 + "d"),
        *("1h1h", "30m1h", "1m60s1m", "1h1hour", "5M", "10S", "1H", "5MS"),
    ],
)
def test_a_text_that_is_no_duration_is_refused_and_the_argument_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^ttl "):
        milliseconds(text, "ttl")


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("64MB", 64_000_000),
        ("1GiB", 2**30),
        ("500kB", 500_000),
        ("512KiB", 524_288),
        ("1.5 GB", 1_500_000_000),
        ("7b", 7),
        ("0MB", 0),
        ("1tib", 2**40),
    ],
)
def test_a_size_may_be_a_text(text: str, amount: int) -> None:
    assert size(text, "disk_read") == amount
    assert IoBudget(disk_read=text) == IoBudget(disk_read=amount)
    assert IoBudget(disk_read=text).disk_read == amount


@pytest.mark.parametrize(
    "text", ["", "64", "MB", "64M", "64Mbit", "64Mb", "1Gb", "1Kib", "-1MB", "1MB2kB", "9EB", "1e3MB"]
)
def test_a_text_that_is_no_size_is_refused_and_the_argument_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^net_tx is written as 500kB, 64MB or 1GiB"):
        IoBudget(net_tx=text)


def test_settings_take_texts_and_equal_those_written_otherwise() -> None:
    assert RateLimit(5, "1m") == RateLimit(5, 60)
    assert Aging(grace="5m", interval="1m") == Aging()
    assert Retry.exponential(3, "1s", "1m") == Retry.exponential(3, 1, 60)
    assert Retention(max_age="2d").rules()[0].max_age_ms == 172_800_000
    assert checked_bandwidth("10MB") == 10_000_000


@given(st.integers(0, 10**6), st.sampled_from([("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)]))
def test_a_text_has_the_duration_of_its_number_and_unit(count: int, unit: tuple[str, int]) -> None:
    name, ms = unit
    assert milliseconds(f"{count}{name}", "ttl") == count * ms


@given(st.integers(0, 10**9))
def test_seconds_in_whole_milliseconds_keep_their_length(ms: int) -> None:
    assert milliseconds(ms / 1000, "ttl") == ms


@pytest.mark.parametrize(("seconds", "ms"), [(2.007, 2007), (1e-12, 1), (0.0005, 1), (2.0071, 2008), (1e-320, 1)])
def test_only_parts_of_a_millisecond_are_rounded_up(seconds: float, ms: int) -> None:
    assert milliseconds(seconds, "ttl") == ms


def test_elapsed_time_is_never_negative() -> None:
    at, later = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 1, tzinfo=UTC)
    assert elapsed(at, later) == timedelta(hours=1)
    assert elapsed(later, at) == timedelta(0), "the clock was set back in between"
