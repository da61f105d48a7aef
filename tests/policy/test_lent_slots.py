"""Slots beyond a group's weight: those that other groups with work could not use."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from taskmill.model.cluster import Demand
from taskmill.policy.shares import allocate, lent


def _lent(slots: int, demands: dict[str, Demand]) -> dict[str, int]:
    return lent(slots, demands, allocate(slots, demands))


demands = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        Demand,
        running=st.integers(0, 5),
        waiting=st.integers(0, 30),
        weight=st.sampled_from([1, 2, 3, 0.5]),
        cap=st.none() | st.integers(4, 12),
        min_slots=st.integers(0, 4),
    ),
)


def test_a_group_with_few_tasks_lends_the_rest_of_its_share() -> None:
    assert _lent(16, {"a": Demand(0, 50_000, 3, 12), "b": Demand(0, 3, 1, 6, 2)}) == {"a": 2}


def test_nothing_is_lent_if_every_group_can_use_its_share() -> None:
    assert _lent(16, {"a": Demand(0, 50_000, 3, 12), "b": Demand(0, 200, 1, 6, 2)}) == {}
    assert _lent(16, {"a": Demand(0, 50_000, 3), "b": Demand(0, 200)}) == {}


def test_a_cap_lends_as_well_as_an_empty_queue() -> None:
    assert _lent(12, {"a": Demand(0, 100, 3, cap=4), "b": Demand(0, 100)}) == {"b": 5}


def test_a_group_alone_lends_and_borrows_nothing() -> None:
    assert _lent(8, {"a": Demand(0, 100)}) == {}
    assert _lent(8, {}) == {}


@given(slots=st.integers(1, 40), demands=demands)
def test_no_more_is_lent_than_others_leave_of_their_own(slots: int, demands: dict[str, Demand]) -> None:
    shares = allocate(slots, demands)
    alone = allocate(slots, {name: demand._replace(waiting=slots, cap=None) for name, demand in demands.items()})
    left = sum(max(alone[name].slots - shares[name].slots, 0) for name in demands)
    found = lent(slots, demands, shares)
    assert sum(found.values()) <= left
    assert all(0 < extra <= shares[name].slots for name, extra in found.items())


@given(slots=st.integers(1, 40), demands=demands)
def test_only_a_bound_makes_a_group_lend(slots: int, demands: dict[str, Demand]) -> None:
    shares = allocate(slots, demands)
    if all(shares[name].slots < demand.bound for name, demand in demands.items()):
        assert lent(slots, demands, shares) == {}
