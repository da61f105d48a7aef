"""Laws of sharing slots among groups at one moment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmill.model.cluster import Demand
from taskmill.model.settings import Group, RateLimit
from taskmill.policy.shares import allocate, is_shared

weights = st.one_of(st.integers(1, 9), st.sampled_from([0.1, 0.3, 0.5, 2.5]))
bare = st.builds(Demand, st.integers(0, 4), st.integers(0, 30), weights, st.none() | st.integers(1, 12))
with_minimum = st.builds(
    lambda each, least: each._replace(min_slots=least if each.cap is None else min(least, each.cap)),
    bare,
    st.sampled_from([0, 0, 0, 1, 2, 5]),
)
names = st.sampled_from([f"g{number}" for number in range(8)])
demands = st.dictionaries(names, with_minimum, min_size=1)
slot_counts = st.integers(0, 40)


def slots_of(slots: int, demand: dict[str, Demand]) -> dict[str, int]:
    return {name: share.slots for name, share in allocate(slots, demand).items()}


def minimum_of(each: Demand) -> int:
    return min(each.min_slots, each.bound)


@pytest.mark.parametrize(
    ("demand", "expected"),
    [
        ({"A": Demand(0, 50_000, 3, 12), "B": Demand(0, 200, 1, 6, 2)}, {"A": 10, "B": 6}),
        ({"A": Demand(0, 50_000, 3, 12), "B": Demand(0, 3, 1, 6, 2)}, {"A": 12, "B": 3}),
        ({"A": Demand(0, 50_000, 3), "B": Demand(0, 200, 1)}, {"A": 12, "B": 4}),
        ({"A": Demand(9, 40, 3), "B": Demand(7, 200, 1)}, {"A": 12, "B": 4}),
        ({"A": Demand(0, 90, 0.3), "B": Demand(0, 90, 0.1)}, {"A": 12, "B": 4}),
        ({"A": Demand(0, 90), "B": Demand(0, 90), "C": Demand(0, 90)}, {"A": 6, "B": 5, "C": 5}),
        ({"A": Demand(0, 90), "B": Demand(0, 0, 9, None, 4)}, {"A": 16, "B": 0}),
        ({}, {}),
    ],
)
def test_the_examples_of_the_contract_and_some_more(demand: dict[str, Demand], expected: dict[str, int]) -> None:
    assert slots_of(16, demand) == expected


@given(slot_counts, demands)
def test_all_slots_are_given_unless_demand_or_caps_are_less(slots: int, demand: dict[str, Demand]) -> None:
    assert sum(slots_of(slots, demand).values()) == min(slots, sum(each.bound for each in demand.values()))


@given(slot_counts, demands)
def test_no_group_gets_or_may_hold_more_than_cap_or_demand(slots: int, demand: dict[str, Demand]) -> None:
    for name, share in allocate(slots, demand).items():
        assert 0 <= share.slots <= demand[name].bound
        assert 0 <= share.limit <= demand[name].bound


@given(slot_counts, demands)
def test_minimums_are_honoured_as_long_as_they_fit(slots: int, demand: dict[str, Demand]) -> None:
    got = slots_of(slots, demand)
    if sum(minimum_of(each) for each in demand.values()) <= slots:
        assert all(got[name] >= minimum_of(each) for name, each in demand.items())
    else:
        assert all(got[name] <= minimum_of(each) for name, each in demand.items())


def test_minimums_that_do_not_fit_are_shared_by_weight_up_to_the_minimum() -> None:
    demand = {"A": Demand(0, 90, 3, None, 10), "B": Demand(0, 90, 1, None, 10), "C": Demand(0, 90, 9)}
    assert slots_of(8, demand) == {"A": 6, "B": 2, "C": 0}
    assert slots_of(16, demand) == {"A": 10, "B": 6, "C": 0}


@given(slot_counts, demands)
def test_a_whole_share_is_within_one_slot_of_the_exact_one(slots: int, demand: dict[str, Demand]) -> None:
    total = sum(slots_of(slots, demand).values())
    for share in allocate(slots, demand).values():
        assert abs(share.slots - share.portion * total) < 1


@given(slot_counts, demands)
def test_the_order_of_groups_does_not_matter(slots: int, demand: dict[str, Demand]) -> None:
    assert allocate(slots, demand) == allocate(slots, dict(reversed(demand.items())))


@given(slot_counts, demands)
def test_names_decide_nothing_but_ties(slots: int, demand: dict[str, Demand]) -> None:
    renamed = {f"g{9 - int(name[1:])}": each for name, each in demand.items()}
    shares, others = allocate(slots, demand), allocate(slots, renamed)
    for name, share in shares.items():
        other = others[f"g{9 - int(name[1:])}"]
        assert other.portion == share.portion
        if other.slots != share.slots:
            assert sum(demand[name].weight == each.weight for each in demand.values()) > 1


@given(slot_counts, demands, names, st.integers(1, 9))
def test_a_group_never_loses_by_growing_heavier(slots: int, demand: dict[str, Demand], name: str, more: int) -> None:
    if name in demand:
        heavier = demand | {name: demand[name]._replace(weight=demand[name].weight + more)}
        assert slots_of(slots, heavier)[name] >= slots_of(slots, demand)[name]


def test_sharing_is_opt_in_by_a_weight_or_a_minimum() -> None:
    assert not is_shared([Group(), Group(weight=1, cap=3, rate=RateLimit.per_second(1))])
    assert is_shared([Group(), Group(weight=2)])
    assert is_shared([Group(min_slots=1)])
