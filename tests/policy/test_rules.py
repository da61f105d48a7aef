"""The rules that result from declarations, changes at run time, and pauses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import UNSET

from taskmill.model.controls import EVERYTHING, NO_CONTROLS, Change, Controls, Declared, Pause, Scope, ScopeKind
from taskmill.model.settings import Group, RateLimit
from taskmill.policy.paused_time import paused_ms
from taskmill.policy.rules import Rules, changed, combined, declared_here, equal_weights, still_valid

NAMES = ["", "a", "b", "c"]
weights = st.sampled_from([0.5, 1, 2, 3])
caps = st.none() | st.integers(1, 9)
minimums = st.integers(0, 9)
rates = st.none() | st.sampled_from([RateLimit.per_second(1), RateLimit.per_minute(7, burst=2)])


@st.composite
def groups(draw: st.DrawFn) -> Group:
    cap = draw(caps)
    return Group(draw(weights), cap, draw(st.integers(0, 9 if cap is None else cap)), draw(rates))


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.just(UNSET) | strategy


changes = st.builds(Change, weight=maybe(weights), cap=maybe(caps), min_slots=maybe(minimums), rate=maybe(rates))
declarations = st.builds(
    Declared,
    max_concurrency=st.integers(1, 20),
    default_group=groups(),
    groups=st.dictionaries(st.sampled_from(NAMES), groups()),
    domain_caps=st.dictionaries(st.sampled_from(["d", "e"]), st.integers(1, 5)),
    rates=st.dictionaries(st.sampled_from(["d::t", "e::t"]), rates.filter(bool)),
)
scopes = st.sampled_from(
    [
        *(Scope(ScopeKind.GROUP, name) for name in NAMES),
        *(Scope(ScopeKind.DOMAIN, name) for name in "de"),
        *(Scope(ScopeKind.TYPE, name) for name in ("d::t", "e::t")),
    ]
)


def _valid(group: Group, change: Change) -> bool:
    cap = group.cap if change.cap is UNSET else change.cap
    return cap is None or change.min_slots is UNSET or change.min_slots <= cap


# Changes


@given(groups(), changes)
def test_a_change_sets_what_it_names_and_keeps_the_rest(group: Group, change: Change) -> None:
    assume(_valid(group, change))
    now = changed(group, change)
    for name in ("weight", "cap", "rate"):
        said = getattr(change, name)
        assert getattr(now, name) == (getattr(group, name) if said is UNSET else said)
    wanted = group.min_slots if change.min_slots is UNSET else change.min_slots
    assert now.min_slots == (wanted if now.cap is None else min(wanted, now.cap)), "a cap bounds the minimum"


@given(changes, changes, changes)
def test_the_later_of_two_changes_counts_and_the_order_of_joining_does_not(a: Change, b: Change, c: Change) -> None:
    both = combined(a, b)
    for name in Change.__struct_fields__:
        later = getattr(b, name)
        assert getattr(both, name) == (getattr(a, name) if later is UNSET else later)
    assert combined(combined(a, b), c) == combined(a, combined(b, c))
    assert combined(a, Change()) == combined(Change(), a) == a
    assert combined(a, a) == a


@given(changes, declarations, declarations, scopes)
def test_a_change_outlives_every_declaration_but_one_about_the_same_thing(
    change: Change, before: Declared, now: Declared, scope: Scope
) -> None:
    assert still_valid(change, before, before, scope) == change
    assert still_valid(change, None, now, scope) == change, "a change from before any declaration stays"
    kept = still_valid(change, before, now, scope)
    for name in Change.__struct_fields__:
        assert getattr(kept, name) in (UNSET, getattr(change, name)), "no value is made up"
    if scope.kind is ScopeKind.GROUP:
        old, new = (each.groups.get(scope.name, each.default_group) for each in (before, now))
        for name in Change.__struct_fields__:
            if getattr(old, name) == getattr(new, name):
                assert getattr(kept, name) == getattr(change, name)
            else:
                assert getattr(kept, name) is UNSET


@given(declarations, st.dictionaries(scopes, changes))
def test_a_change_counts_and_else_the_declaration(declared: Declared, made: dict[Scope, Change]) -> None:
    made = {
        scope: change
        for scope, change in made.items()
        if _valid(declared.groups.get(scope.name, declared.default_group), change)
    }
    rules = Rules(declared, Controls(1, declared, made))
    for name in NAMES:
        own = declared.groups.get(name, declared.default_group)
        assert rules.group(name) == changed(own, made.get(Scope(ScopeKind.GROUP, name), Change()))
        assert rules.rate(Scope(ScopeKind.GROUP, name)) == rules.group(name).rate
    for name in "de":
        said = made.get(Scope(ScopeKind.DOMAIN, name), Change()).cap
        assert rules.domain_cap(name) == (declared.domain_caps.get(name) if said is UNSET else said)
        rate = made.get(Scope(ScopeKind.TYPE, f"{name}::t"), Change()).rate
        found = rules.rate(Scope(ScopeKind.TYPE, f"{name}::t"))
        assert found == (declared.rates.get(f"{name}::t") if rate is UNSET else rate)
    if not rules.limits_anything:
        limits = [rules.group(name) for name in NAMES]
        assert not any(group.cap or group.rate or group.has_share for group in limits)
        assert rules.domain_cap("d") is None
        assert not rules.is_shared


@given(declarations, st.dictionaries(scopes, changes))
def test_equal_weights_are_equal(declared: Declared, made: dict[Scope, Change]) -> None:
    made = {
        scope: change
        for scope, change in made.items()
        if _valid(declared.groups.get(scope.name, declared.default_group), change)
    }
    rules = Rules(declared, Controls(1, declared, made))
    reset = {Scope(ScopeKind.GROUP, name): change for name, change in equal_weights(rules)}
    after = {**made, **{scope: combined(made.get(scope, Change()), change) for scope, change in reset.items()}}
    now = Rules(declared, Controls(2, declared, after))
    assert {now.group(name).weight for name in NAMES} == {declared.default_group.weight}
    for name in NAMES:
        assert msgspec.structs.replace(now.group(name), weight=1) == msgspec.structs.replace(
            rules.group(name), weight=1
        )
    assert list(equal_weights(now)) == []


# Which declaration counts

OWN = Declared(max_concurrency=3)
STORED = Declared(max_concurrency=5)


@pytest.mark.parametrize(
    ("own", "stored", "is_dispatched", "counts"),
    [
        (OWN, None, False, OWN),
        (OWN, None, True, OWN),
        (OWN, STORED, False, OWN),
        (OWN, STORED, True, STORED),
        (Declared(), STORED, False, STORED),
        (Declared(), STORED, True, STORED),
        (Declared(), None, False, Declared()),
    ],
)
def test_the_declaration_of_the_dispatcher_counts(
    own: Declared, stored: Declared | None, is_dispatched: bool, counts: Declared
) -> None:
    assert declared_here(own, Controls(1, stored), is_dispatched=is_dispatched) is counts or counts == Declared()


# Pauses

PAUSES = {
    EVERYTHING: Pause(5),
    Scope(ScopeKind.DOMAIN, "d"): Pause(10, 100),
    Scope(ScopeKind.GROUP, "a"): Pause(20, 50),
}


def test_a_task_is_paused_by_its_scheduler_its_domain_and_its_group() -> None:
    rules = Rules(Declared(), Controls(1, None, pauses=PAUSES))
    assert set(rules.pauses("a", "d::t")) == set(PAUSES)
    assert set(rules.pauses("b", "d::t")) == {EVERYTHING, Scope(ScopeKind.DOMAIN, "d")}
    assert set(rules.pauses("b", "de::t")) == {EVERYTHING}
    assert Rules(Declared(), NO_CONTROLS).pauses("a", "d::t") == {}
    assert rules.next_resumption() == 50
    assert rules.limits_anything
    assert (rules.paused(ScopeKind.GROUP, 49), rules.paused(ScopeKind.GROUP, 50)) == ({"a": 50}, {})
    assert (rules.paused(ScopeKind.DOMAIN, 99), rules.paused(ScopeKind.DOMAIN, 100)) == ({"d": 100}, {})


@given(
    st.lists(st.tuples(st.integers(0, 60), st.none() | st.integers(0, 60)), max_size=5),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_time_stands_still_while_anything_is_paused(spans: list[tuple[int, int | None]], since: int, now: int) -> None:
    pauses = [Pause(begin, end) for begin, end in spans]
    counted = sum(
        any(begin <= moment and (end is None or moment < end) for begin, end in spans) for moment in range(since, now)
    )
    assert paused_ms(pauses, since, now) == counted
