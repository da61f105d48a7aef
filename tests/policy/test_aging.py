"""Laws of aging."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from taskmill import Priority
from taskmill.model.settings import Aging
from taskmill.policy.aging import (
    effective_priority,
    is_urgent,
    lines_ahead,
    lines_crossed,
    max_wait_ms,
    next_step_ms,
    wait_until_ms,
)

priorities = st.integers(0, 255)
waits = st.integers(-10_000, 10**9)
agings = st.builds(
    lambda grace, interval, step, ceiling, above: Aging(
        grace, interval, step, ceiling, None if above is None else min(ceiling + above, 255)
    ),
    st.integers(0, 900),
    st.floats(0.001, 900),
    st.integers(1, 255),
    priorities,
    st.none() | priorities,
)


@given(agings, priorities, waits)
def test_effective_priority_is_never_less_urgent_than_base(aging: Aging, base: int, waited: int) -> None:
    assert 0 <= effective_priority(aging, base, waited) <= base


@given(agings, priorities, waits)
def test_the_ceiling_is_never_passed_and_never_demotes(aging: Aging, base: int, waited: int) -> None:
    assert effective_priority(aging, base, waited) >= min(base, aging.ceiling)
    if base <= aging.ceiling:
        assert effective_priority(aging, base, waited) == base


@given(agings, priorities, waits, st.integers(0, 10**8))
def test_of_one_base_priority_older_is_never_less_urgent(aging: Aging, base: int, waited: int, older: int) -> None:
    assert effective_priority(aging, base, waited + older) <= effective_priority(aging, base, waited)


def test_the_formula_is_that_of_the_contract() -> None:
    aging = Aging(grace=300, interval=60, step=10)
    waits = [0, 299, 300, 359, 360, 419, 420, 10**6]
    assert [effective_priority(aging, 192, wait * 1000) for wait in waits] == [192, 192, 192, 192, 182, 182, 172, 64]
    assert effective_priority(None, 192, 10**9) == 192


@given(agings, priorities, priorities)
def test_a_level_is_reached_exactly_after_the_wait_for_it(aging: Aging, base: int, level: int) -> None:
    wait = wait_until_ms(aging, base, level)
    if wait is None:
        assert effective_priority(aging, base, 10**12) > level
    else:
        assert effective_priority(aging, base, wait) <= level
        assert wait == 0 or effective_priority(aging, base, wait - 1) > level


@given(agings, priorities)
def test_max_wait_is_the_exact_bound_at_which_a_task_is_urgent(aging: Aging, base: int) -> None:
    assume(aging.urgent is not None)
    wait = max_wait_ms(aging, base)
    assert is_urgent(aging, effective_priority(aging, base, wait))
    assert wait == 0 or not is_urgent(aging, effective_priority(aging, base, wait - 1))


def test_max_wait_follows_the_contract_and_without_a_line_goes_to_the_ceiling() -> None:
    aging = Aging(grace=300, interval=60, step=10, ceiling=Priority.HIGH, urgent=Priority.NORMAL)
    assert max_wait_ms(aging, Priority.LOW) == (300 + 7 * 60) * 1000
    assert max_wait_ms(aging, Priority.NORMAL) == max_wait_ms(aging, Priority.CRITICAL) == 0
    assert max_wait_ms(Aging(), Priority.LOW) == (300 + 128 * 60) * 1000
    assert not is_urgent(Aging(), 0)
    assert not is_urgent(None, 0)


@given(agings, priorities, waits)
def test_the_next_step_is_the_next_instant_at_which_anything_changes(aging: Aging, base: int, waited: int) -> None:
    now, step = effective_priority(aging, base, waited), next_step_ms(aging, base, waited)
    if step is None:
        assert effective_priority(aging, base, 10**12) == now
    else:
        assert step > waited
        assert effective_priority(aging, base, step - 1) == now
        assert effective_priority(aging, base, step) < now


@given(agings, priorities, st.lists(waits, min_size=2))
def test_however_often_one_looks_each_line_ahead_is_crossed_once(aging: Aging, base: int, looks: list[int]) -> None:
    looks = [-1, *sorted(looks), 10**12]
    crossed = [
        line
        for before, after in pairwise(looks)
        for line in lines_crossed(aging, base, max(before, -1), max(after, -1))
    ]
    assert crossed == lines_ahead(aging, base)


@pytest.mark.parametrize(
    ("base", "urgent", "expected"),
    [
        (Priority.IDLE, None, [192, 128, 64]),
        (Priority.IDLE, 100, [192, 128, 100, 64]),
        (Priority.LOW, 128, [128, 64]),
        (Priority.HIGH, 64, []),
        (Priority.CRITICAL, None, []),
    ],
)
def test_the_lines_are_the_named_levels_and_the_urgent_one(base: int, urgent: int | None, expected: list[int]) -> None:
    assert lines_ahead(Aging(urgent=urgent), base) == expected
