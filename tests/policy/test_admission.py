"""Laws of admission: which planned starts may happen by the actual numbers."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from taskmill.model.cluster import NOWHERE, Admission, Demand, Elsewhere, Start
from taskmill.model.controls import Scope, ScopeKind
from taskmill.policy.admission import admitted
from taskmill.policy.shares import allocate

groups = st.sampled_from(["", "a", "b"])
types = st.sampled_from(["d::x", "d::y", "e::x"])
few = st.integers(0, 5)
held = st.dictionaries(groups, few)
domains = st.dictionaries(st.sampled_from(["d", "e"]), few)
elsewheres = st.builds(Elsewhere, held, domains, st.integers(0, 10))
starts = st.lists(st.tuples(groups, types, st.booleans()), max_size=12).map(
    lambda given: [Start(id, *words) for id, words in enumerate(given, 1)]
)
caps = st.dictionaries(groups, st.integers(0, 8))
domain_caps = st.dictionaries(st.sampled_from(["d", "e"]), st.integers(0, 8))
demands = st.none() | st.fixed_dictionaries(
    {name: st.builds(Demand, few, st.integers(0, 20), st.integers(1, 3)) for name in ("", "a", "b")}
)
plans = st.builds(Admission, starts, elsewheres, held, domains, caps, domain_caps, demands, st.integers(1, 10))
scopes = st.builds(Scope, st.just(ScopeKind.GROUP), groups) | st.builds(Scope, st.just(ScopeKind.TYPE), types)
permits = st.dictionaries(scopes, few)


@given(plans)
def test_with_the_picture_it_was_planned_with_everything_starts(plan: Admission) -> None:
    assert admitted(plan, plan.planned, {}) == [start.id for start in plan.starts]


@given(plans, elsewheres, permits)
def test_starts_keep_their_order_and_none_is_added(
    plan: Admission, elsewhere: Elsewhere, left: dict[Scope, int]
) -> None:
    ids = admitted(plan, elsewhere, left)
    assert ids == sorted(set(ids))
    assert set(ids) <= {start.id for start in plan.starts}


@given(plans, elsewheres, permits)
def test_no_permit_is_taken_twice(plan: Admission, elsewhere: Elsewhere, left: dict[Scope, int]) -> None:
    allowed = set(admitted(plan, elsewhere, left))
    taken = Counter(
        scope
        for start in plan.starts
        if start.id in allowed
        for scope in (Scope(ScopeKind.GROUP, start.group), Scope(ScopeKind.TYPE, start.type))
    )
    assert all(taken[scope] <= count for scope, count in left.items())


@given(plans, elsewheres)
def test_under_another_picture_no_cap_and_no_share_is_exceeded(plan: Admission, elsewhere: Elsewhere) -> None:
    if elsewhere == plan.planned:
        return
    allowed = set(admitted(plan, elsewhere, {}))
    begun = [start for start in plan.starts if start.id in allowed]
    now = Counter(plan.groups) + Counter(elsewhere.groups)
    after = now + Counter(start.group for start in begun)
    for group, cap in plan.caps.items():
        assert after[group] <= max(cap, now[group])
    in_domains = Counter(plan.domains) + Counter(elsewhere.domains)
    for domain, cap in plan.domain_caps.items():
        more = sum(start.type.startswith(f"{domain}::") for start in begun)
        assert in_domains[domain] + more <= max(cap, in_domains[domain])
    if plan.demands is not None:
        true = {group: demand._replace(running=now[group]) for group, demand in plan.demands.items()}
        shares = allocate(plan.slots + elsewhere.slots, true)
        for group in plan.demands:
            by_share = sum(start.by_share for start in begun if start.group == group)
            if by_share:
                assert now[group] + by_share <= shares[group].limit


@given(plans, elsewheres)
def test_a_task_without_limits_starts_whatever_the_others_do(plan: Admission, elsewhere: Elsewhere) -> None:
    free = plan._replace(caps={}, domain_caps={}, demands=None)
    assert admitted(free, elsewhere, {}) == [start.id for start in plan.starts]


def test_a_group_that_only_others_have_work_of_keeps_what_it_holds() -> None:
    plan = Admission([Start(1, "a", "d::x"), Start(2, "a", "d::x")], NOWHERE, {}, {}, {}, {}, {"a": Demand(0, 9)}, 2)
    assert admitted(plan, Elsewhere({"b": 3}, {"d": 3}, 2), {}) == [1]
