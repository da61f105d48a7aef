"""The values that configure rates, groups and aging: what they accept, and what they refuse by name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from taskmill import ConfigError, Priority
from taskmill.model.settings import Aging, Group, RateLimit

NAN = float("nan")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: RateLimit(0, 1), "permits must be from 1"),
        (lambda: RateLimit(True, 1), "permits must be an int"),
        (lambda: RateLimit(10**7, 1), "permits must be from 1 to 1,000,000"),
        (lambda: RateLimit(1, 0), "interval must be longer than zero"),
        (lambda: RateLimit(1, -1), "interval must not be negative"),
        (lambda: RateLimit(1, NAN), "interval must not be NaN"),
        (lambda: RateLimit(1, "1"), "interval is written as 250ms, 10s, 10m, 1h30m or 2d, got '1'"),
        (lambda: RateLimit(1, 1, 0), "burst must be from 1"),
        (lambda: RateLimit(1, 1, 1.5), "burst must be an int"),  # type: ignore[arg-type]
        (lambda: RateLimit.per_second(0.5), "n must be an int.*per_minute"),  # type: ignore[arg-type]
        (lambda: RateLimit.per_second(0), "n must be from 1"),
        (lambda: RateLimit.per_minute(-1), "n must be from 1"),
        (lambda: RateLimit.per_minute(1, burst=-1), "burst must be from 1"),
        (lambda: Group(weight=0), "weight must be from"),
        (lambda: Group(weight=-1), "weight must be from"),
        (lambda: Group(weight=NAN), "weight must be from"),
        (lambda: Group(weight=float("inf")), "weight must be from"),
        (lambda: Group(weight=10**400), "weight must be from"),
        (lambda: Group(weight=True), "weight must be a number"),
        (lambda: Group(weight="3"), "weight must be a number"),  # type: ignore[arg-type]
        (lambda: Group(cap=0), "cap must be at least 1.*pause"),
        (lambda: Group(cap=-1), "cap must not be negative"),
        (lambda: Group(cap=1.0), "cap must be an int"),  # type: ignore[arg-type]
        (lambda: Group(min_slots=-1), "min_slots must not be negative"),
        (lambda: Group(min_slots=None), "min_slots must be an int"),  # type: ignore[arg-type]
        (lambda: Group(rate=5), "rate must be a RateLimit"),  # type: ignore[arg-type]
        (lambda: Aging(grace=-1), "grace must not be negative"),
        (lambda: Aging(interval=0), "interval must be longer than zero"),
        (lambda: Aging(interval=NAN), "interval must not be NaN"),
        (lambda: Aging(step=0), "step must be from 1"),
        (lambda: Aging(step=256), "step must be from 1"),
        (lambda: Aging(step=0.5), "step must be an int"),  # type: ignore[arg-type]
        (lambda: Aging(ceiling=256), "ceiling must be from 0"),
        (lambda: Aging(ceiling="high"), "ceiling must be an int"),  # type: ignore[arg-type]
        (lambda: Aging(urgent=-1), "urgent must be from 0"),
        (lambda: Aging(urgent=Priority.CRITICAL), "urgent 0 .* ceiling 64, so no task would ever age to it"),
    ],
)
def test_a_wrong_value_is_refused_and_the_argument_named(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


def test_a_burst_defaults_to_the_permits() -> None:
    assert RateLimit.per_second(5).burst == 5
    assert RateLimit.per_second(5) == RateLimit(5, "1s", 5)
    assert RateLimit.per_minute(5, burst=2).burst == 2
    assert RateLimit.per_minute(5).interval_ms == 60_000


def test_one_duration_has_one_form_and_durations_read_as_timedeltas() -> None:
    assert RateLimit(5, 60) == RateLimit.per_minute(5) == RateLimit(5, timedelta(minutes=1))
    assert Aging(grace=timedelta(minutes=5)) == Aging()
    assert (Aging().grace, Aging().interval) == (timedelta(minutes=5), timedelta(minutes=1))
    assert (Aging().grace_ms, Aging().interval_ms) == (300_000, 60_000)


@pytest.mark.parametrize(
    "value",
    [
        RateLimit(3, 0.25),
        Group(weight=0.5, cap=6, min_slots=2, rate=RateLimit.per_second(5, burst=9)),
        Aging(grace=0, interval=0.5, step=255, ceiling=Priority.CRITICAL, urgent=Priority.CRITICAL),
    ],
)
def test_a_value_that_was_stored_reads_back_equal(value: RateLimit | Group | Aging) -> None:
    assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value


def test_a_change_is_checked_like_a_new_value() -> None:
    with pytest.raises(ConfigError, match="cap must be at least 1"):
        msgspec.structs.replace(Group(cap=4, min_slots=3), cap=0)


def test_a_minimum_is_never_above_the_cap() -> None:
    assert Group(cap=2, min_slots=3) == Group(cap=2, min_slots=2)
    assert msgspec.structs.replace(Group(cap=4, min_slots=3), cap=2).min_slots == 2


def test_the_urgent_line_may_lie_at_the_ceiling() -> None:
    assert Aging(ceiling=Priority.HIGH, urgent=Priority.HIGH).urgent == Priority.HIGH
