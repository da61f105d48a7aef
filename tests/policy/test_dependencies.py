"""Laws of dependencies: what an ending means for dependents, cycles, and the plan of an inbox with dependencies."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmill.errors import CyclicDependency, DependencyFailed, InvalidDependency, SubmissionError
from taskmill.model.status import Ending, OnDependencyFailure, OnDuplicate, Status
from taskmill.model.task import Links, NewTask
from taskmill.policy.dependencies import DependencyState, Needs, answer_ending, find_cycle
from taskmill.policy.duplicates import Holder
from taskmill.policy.inbox import InboxPlan, Keys, plan_inbox
from tests.policy.test_inbox import new_task

CANCEL, FAIL, IGNORE = OnDependencyFailure.CANCEL, OnDependencyFailure.FAIL, OnDependencyFailure.IGNORE
graphs = st.dictionaries(st.integers(0, 7), st.lists(st.integers(0, 7), max_size=4), max_size=8)


def task(
    *depends_on: int | str,
    ref: str | None = None,
    key: str | None = None,
    policy: OnDependencyFailure | None = None,
    on_duplicate: OnDuplicate = OnDuplicate.SUPERSEDE,
) -> NewTask:
    links = Links(depends_on=depends_on, ref=ref, on_dependency_failure=policy)
    return msgspec.structs.replace(new_task(key, 1, on_duplicate, "{}"), links=links)


def planned(*request: NewTask, first_id: int = 10, keys: Keys | None = None, **states: DependencyState) -> InboxPlan:
    known = {int(name[1:]): state for name, state in states.items()}
    return plan_inbox([request], keys or Keys(), first_id, Needs(known))


# What an ending means


@given(st.sampled_from(Ending), st.sampled_from(OnDependencyFailure), st.booleans())
def test_a_dependency_is_met_by_success_or_if_its_failure_is_ignored_or_contained(
    ending: Ending, policy: OnDependencyFailure, contained: bool
) -> None:
    answer = answer_ending(ending, policy, contained=contained)
    assert (answer == "met") == (ending is Ending.COMPLETED or policy is IGNORE or contained)
    assert (answer == "fails alone") == (answer != "met" and policy is FAIL)


# Cycles


def on_a_cycle(edges: dict[int, list[int]]) -> set[int]:
    """Return, by brute force, the nodes that can reach themselves."""
    found = set[int]()
    for start in edges:
        reached = set(edges.get(start, ()))
        while more := {b for a in reached for b in edges.get(a, ())} - reached:
            reached |= more
        if start in reached:
            found.add(start)
    return found


@given(graphs)
def test_a_cycle_is_found_if_and_only_if_there_is_one_and_it_is_one(edges: dict[int, list[int]]) -> None:
    cycle = find_cycle(edges)
    assert (cycle is None) == (not on_a_cycle(edges))
    if cycle is not None:
        assert len(cycle) == len(set(cycle))
        for node, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            assert following in edges[node]


def test_a_long_chain_costs_no_recursion() -> None:
    edges = {n: [n + 1] for n in range(100_000)}
    assert find_cycle(edges) is None
    edges[100_000] = [99_999]
    assert sorted(find_cycle(edges) or ()) == [99_999, 100_000]


# The inbox


requests = st.lists(
    st.tuples(st.lists(st.integers(0, 5) | st.sampled_from([101, 102, 103]), max_size=3, unique=True)), max_size=6
)


@given(requests, st.sampled_from(OnDependencyFailure))
def test_a_request_is_stored_whole_or_refused_whole(
    shapes: list[tuple[list[int]]], policy: OnDependencyFailure
) -> None:
    """``0..5`` are refs; 101 is active, 102 has completed, 103 has failed."""
    request = [
        task(*(str(n) if n < 100 else n for n in needs), ref=str(index), policy=policy)
        for index, (needs,) in enumerate(shapes)
    ]
    states: dict[int, DependencyState] = {101: "active", 102: Ending.COMPLETED, 103: Ending.FAILED}
    plan = plan_inbox([request], Keys(), 200, Needs(states))
    (answer,) = plan.answers
    unknown = any(n < 100 and n >= len(shapes) for (needs,) in shapes for n in needs)
    failed = policy is not IGNORE and any(103 in needs for (needs,) in shapes)
    edges = {index: [n for n in needs if n < 100] for index, (needs,) in enumerate(shapes)}
    circular = not unknown and bool(on_a_cycle(edges))
    assert isinstance(answer, SubmissionError) == (unknown or failed or circular)
    if isinstance(answer, SubmissionError):
        assert not plan.fresh
        assert not plan.edges
        return
    for index, (needs,) in enumerate(shapes):
        id = answer[index].id
        wanted = {(id, answer[n].id if n < 100 else n, n < 100 or n == 101) for n in needs}
        assert {edge for edge in plan.edges if edge[0] == id} == wanted
        waits = any(is_open for _, _, is_open in wanted)
        assert plan.fresh[id - 200].status is (Status.BLOCKED if waits else Status.PENDING)


def test_an_unknown_dependency_is_refused() -> None:
    for on in (0, -3, 10, 11, 99):
        (answer,) = planned(task(on)).answers
        assert isinstance(answer, InvalidDependency)
    (pruned,) = planned(task(4)).answers
    assert isinstance(pruned, InvalidDependency)
    assert "pruned" in str(pruned)


def test_a_pruned_dependency_does_not_matter_if_failure_is_ignored() -> None:
    plan = planned(task(4, policy=IGNORE))
    assert plan.edges == [(10, 4, False)]
    assert plan.fresh[0].status is Status.PENDING


@pytest.mark.parametrize("ending", [ending for ending in Ending if ending is not Ending.COMPLETED])
def test_one_that_has_failed_already_refuses_the_submission(ending: Ending) -> None:
    for policy in (None, CANCEL, FAIL):
        (answer,) = planned(task(4, policy=policy), _4=ending).answers
        assert isinstance(answer, DependencyFailed)
    assert planned(task(4, policy=IGNORE), _4=ending).edges == [(10, 4, False)]


def test_the_ref_of_a_duplicate_is_the_task_that_holds_the_key() -> None:
    keys = Keys({("d::t", "k"): Holder(3, Status.RUNNING, 1, queued_at=1)})
    plan = planned(task(ref="a", key="k", on_duplicate=OnDuplicate.SKIP), task("a"), keys=keys)
    assert plan.edges == [(10, 3, True)]


def test_submissions_with_one_key_are_one_node() -> None:
    (answer,) = planned(task("b", key="k"), task(ref="b"), task(key="k", ref="c"), task("c")).answers
    assert not isinstance(answer, SubmissionError)
    (cycle,) = planned(task(ref="a", key="k"), task("a", ref="b"), task("b", key="k")).answers
    assert isinstance(cycle, CyclicDependency)
