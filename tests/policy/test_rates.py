"""Laws of token buckets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmill.model.controls import Bucket
from taskmill.model.durations import LONGEST_MS
from taskmill.model.settings import MOST_PERMITS, RateLimit
from taskmill.policy.rates import carry_over, full_at, full_bucket, next_permit_at, permits_at, take_permits

limits = st.builds(RateLimit, st.integers(1, 50), st.floats(0.001, 100), st.none() | st.integers(1, 80))
instants = st.integers(0, 10**6)


def _bucket(limit: RateLimit, level: int, at: int) -> Bucket:
    return Bucket(level % (limit.capacity * limit.interval_ms + 1), at, limit.interval_ms)


buckets_of = st.tuples(limits, st.integers(0, 10**9), instants).map(
    lambda drawn: (
        drawn[0],
        Bucket(drawn[1] % (drawn[0].capacity * drawn[0].interval_ms + 1), drawn[2], drawn[0].interval_ms),
    )
)


@given(limits, instants)
def test_a_bucket_starts_full(limit: RateLimit, now: int) -> None:
    assert permits_at(full_bucket(limit, now), limit, now) == limit.capacity


@given(limits, st.lists(st.tuples(instants, st.integers(0, 5))))
def test_it_holds_between_nothing_and_the_burst_whatever_the_clock_does(
    limit: RateLimit, steps: list[tuple[int, int]]
) -> None:
    bucket = full_bucket(limit, 0)
    for now, wanted in steps:
        available = permits_at(bucket, limit, now)
        assert 0 <= available <= limit.capacity
        bucket = take_permits(bucket, limit, now, min(wanted, available))
        assert bucket.level >= 0
        assert permits_at(bucket, limit, now) == available - min(wanted, available)


@given(limits, st.lists(st.integers(0, 5000), min_size=1, max_size=100))
def test_no_more_is_taken_than_the_burst_and_the_rate_allow(limit: RateLimit, pauses: list[int]) -> None:
    bucket, now, taken = full_bucket(limit, 0), 0, 0
    for pause in pauses:
        now += pause
        available = permits_at(bucket, limit, now)
        bucket = take_permits(bucket, limit, now, available)
        taken += available
        assert (taken - limit.capacity) * limit.interval_ms <= now * limit.permits


@given(limits, st.lists(st.integers(0, 5000), min_size=1, max_size=30))
def test_no_more_is_taken_between_any_two_moments(limit: RateLimit, pauses: list[int]) -> None:
    bucket, now = full_bucket(limit, 0), 0
    takes: list[tuple[int, int]] = []
    for pause in pauses:
        now += pause
        available = permits_at(bucket, limit, now)
        bucket = take_permits(bucket, limit, now, available)
        takes.append((now, available))
    for first, (since, _) in enumerate(takes):
        taken = 0
        for at, count in takes[first:]:
            taken += count
            assert (taken - limit.capacity) * limit.interval_ms <= (at - since) * limit.permits


@given(limits)
def test_the_rate_is_exact_over_time(limit: RateLimit) -> None:
    bucket, now = take_permits(full_bucket(limit, 0), limit, 0, limit.capacity), 0
    for _ in range(limit.permits):
        now = next_permit_at(bucket, limit, now)
        bucket = take_permits(bucket, limit, now)
    # A burst that is smaller than the permits of one millisecond overflows by less than that.
    late = 0 if limit.capacity >= limit.permits else limit.permits
    assert limit.interval_ms <= now <= limit.interval_ms + late


@given(buckets_of, instants)
def test_the_next_permit_is_there_when_promised_and_not_before(given: tuple[RateLimit, Bucket], now: int) -> None:
    limit, bucket = given
    settled = take_permits(bucket, limit, now, 0)
    at = next_permit_at(bucket, limit, now)
    assert at >= now
    assert permits_at(settled, limit, at) >= 1
    assert at == now or permits_at(settled, limit, at - 1) == 0


@given(buckets_of)
def test_a_bucket_is_full_when_promised_and_not_before(given: tuple[RateLimit, Bucket]) -> None:
    limit, bucket = given
    at = full_at(bucket, limit)
    assert permits_at(bucket, limit, at) == limit.capacity
    assert at == bucket.at or permits_at(bucket, limit, at - 1) < limit.capacity


@given(buckets_of, st.integers(0, 10**6))
def test_a_clock_that_steps_back_adds_nothing_and_costs_nothing(given: tuple[RateLimit, Bucket], back: int) -> None:
    limit, bucket = given
    assert permits_at(bucket, limit, bucket.at - back) == permits_at(bucket, limit, bucket.at)
    late, steady = bucket.at - back + limit.interval_ms, bucket.at + limit.interval_ms
    settled = take_permits(bucket, limit, bucket.at - back, 0)
    assert permits_at(settled, limit, late) == permits_at(bucket, limit, steady)


@given(buckets_of, limits, instants)
def test_a_new_limit_keeps_what_the_bucket_holds_and_is_no_new_burst(
    given: tuple[RateLimit, Bucket], new: RateLimit, now: int
) -> None:
    old, bucket = given
    changed = carry_over(bucket, old, new, now)
    assert permits_at(changed, new, now) == min(permits_at(bucket, old, now), new.capacity)


def test_taking_more_than_there_is_is_refused() -> None:
    limit = RateLimit.per_second(2)
    with pytest.raises(ValueError, match="cannot take 3 permits of 2"):
        take_permits(full_bucket(limit, 0), limit, 0, 3)
    with pytest.raises(ValueError, match="cannot take -1"):
        take_permits(full_bucket(limit, 0), limit, 0, -1)


def test_the_fullest_bucket_fits_in_64_bits() -> None:
    limit = RateLimit(MOST_PERMITS, LONGEST_MS // 1000)
    assert full_bucket(limit, 0).level < 2**63
