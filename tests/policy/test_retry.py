"""Laws of retry delays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmill import ConfigError, Retry
from taskmill.policy.verdicts import retry_delay_ms

seconds = st.floats(min_value=0, max_value=10_000, allow_nan=False)
policies = st.one_of(
    st.builds(Retry.constant, st.integers(0, 50), seconds),
    st.builds(Retry.linear, st.integers(0, 50), seconds, seconds, seconds),
    st.builds(Retry.exponential, st.integers(0, 50), seconds, seconds, st.floats(1, 100)),
)


@given(policies, st.integers(0, 5000))
def test_a_delay_is_never_negative_and_never_above_the_maximum(retry: Retry, so_far: int) -> None:
    assert 0 <= retry_delay_ms(retry, so_far) <= max(retry.maximum_ms, 0)


@given(policies, st.integers(0, 5000))
def test_without_jitter_a_delay_never_shrinks(retry: Retry, so_far: int) -> None:
    assert retry_delay_ms(retry, so_far) <= retry_delay_ms(retry, so_far + 1)


@given(seconds, seconds, st.integers(0, 100), st.floats(0, 1))
def test_jitter_stays_between_zero_and_the_plain_delay(
    initial: float, maximum: float, so_far: int, random: float
) -> None:
    plain = Retry.exponential(5, initial, maximum)
    jittered = Retry.exponential(5, initial, maximum, jitter=True)
    assert 0 <= retry_delay_ms(jittered, so_far, random) <= retry_delay_ms(plain, so_far)


def test_the_formulas_are_those_of_the_contract() -> None:
    assert [retry_delay_ms(Retry.constant(3, 2), r) for r in range(3)] == [2000, 2000, 2000]
    assert [retry_delay_ms(Retry.linear(9, 1, 2, 6), r) for r in range(4)] == [1000, 3000, 5000, 6000]
    assert [retry_delay_ms(Retry.exponential(9, 1, 10, 3), r) for r in range(4)] == [1000, 3000, 9000, 10_000]
    # As floats, 1000 * 1.7**2 is 2889.9999999999995.
    assert [retry_delay_ms(Retry.exponential(9, 1, 10, 1.7), r) for r in range(4)] == [1000, 1700, 2890, 4913]


@pytest.mark.parametrize(
    ("build", "word"),
    [
        (lambda: Retry.constant(-1, 1), "n"),
        (lambda: Retry.constant(1.5, 1), "n"),  # type: ignore[arg-type]
        (lambda: Retry.constant(True, 1), "n"),
        (lambda: Retry.constant(1, -1), "delay"),
        (lambda: Retry.constant(1, float("nan")), "delay"),
        (lambda: Retry.constant(1, "1"), "delay"),
        (lambda: Retry.linear(1, 1, -1, 1), "increment"),
        (lambda: Retry.linear(1, 1, 1, float("inf")), "maximum"),
        (lambda: Retry.exponential(1, 1, 1, factor=0.5), "factor"),
        (lambda: Retry.exponential(1, 1, 1, factor=float("nan")), "factor"),
        (lambda: Retry.exponential(1, 1, 1, jitter=1), "jitter"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_policy_is_refused_and_the_argument_named(build: object, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        build()  # type: ignore[operator]
