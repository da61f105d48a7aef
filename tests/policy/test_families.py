"""Laws of families: how trees are stopped and expire, what children inherit, and what a parent does next."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from taskmill.model.attempt import End, Return, StopReason, TryAgain, Verdict, Wait
from taskmill.model.status import Ending, OnDuplicate, Status
from taskmill.model.task import Family, Links, NewTask
from taskmill.policy.families import (
    Member,
    ParentTraits,
    family_verdict,
    inherit,
    next_step,
    plan_expiry,
    plan_stop,
)
from tests.policy.test_inbox import new_task


@st.composite
def trees(draw: st.DrawFn) -> list[Member]:
    """Active members with ids from 1; the parent of each, if it has one, has a smaller id."""
    members: list[Member] = []
    for id in range(1, draw(st.integers(1, 9)) + 1):
        parent = draw(st.none() | st.integers(1, id - 1)) if id > 1 else None
        status = draw(st.sampled_from(Status))
        stop = draw(st.sampled_from([None, None, None, "cancel", "supersede", "fail"]))
        if stop is not None:
            status = draw(st.sampled_from([Status.RUNNING, Status.WAITING, Status.PENDING]))
        finalizing = draw(st.booleans()) if status is not Status.BLOCKED else False
        members.append(
            Member(id, parent, status, stop, finalizing, draw(st.sampled_from([None, "cancel"])), draw(st.booleans()))
        )
    return draw(st.permutations(members))


def below(members: list[Member], roots: list[int]) -> set[int]:
    found = {member.id for member in members if member.id in roots}
    while more := {member.id for member in members if member.parent_id in found} - found:
        found |= more
    return found


def some_roots(data: st.DataObject, members: list[Member]) -> list[int]:
    return data.draw(st.lists(st.sampled_from([member.id for member in members]), min_size=1, max_size=4, unique=True))


@given(trees(), st.data())
def test_a_tree_is_stopped_whole_and_each_member_once(members: list[Member], data: st.DataObject) -> None:
    roots = some_roots(data, members)
    plan = plan_stop(members, roots)
    all_planned = [*plan.ends, *plan.running, *plan.waits, *plan.hooks]
    assert len(all_planned) == len(set(all_planned))
    tree = below(members, roots)
    stopping = {member.id for member in members if member.stop is not None}
    assert set(all_planned) == tree - stopping


@given(trees(), st.data())
def test_no_task_ends_or_runs_its_hook_before_its_children_have_ended(
    members: list[Member], data: st.DataObject
) -> None:
    """For any roots, in any order, including a root below another."""
    roots = some_roots(data, members)
    plan = plan_stop(members, roots)
    ends = {id: place for place, id in enumerate(plan.ends)}
    tree = below(members, roots)
    for member in members:
        if member.id not in tree or member.parent_id not in tree:
            continue
        if member.id in ends:
            assert ends[member.id] < ends.get(member.parent_id, len(ends))
        else:
            assert member.parent_id not in ends
            assert member.parent_id not in plan.hooks


@given(trees(), st.data())
def test_running_tasks_are_asked_to_stop_and_tasks_without_a_hook_end(
    members: list[Member], data: st.DataObject
) -> None:
    roots = some_roots(data, members)
    plan = plan_stop(members, roots)
    known = {member.id: member for member in members}
    assert not any(known[id].hook_left or known[id].status is Status.RUNNING for id in plan.ends)
    assert all(known[id].status is Status.RUNNING for id in plan.running)
    assert not any(known[id].status is Status.RUNNING for id in [*plan.waits, *plan.hooks])
    for id in plan.hooks:
        assert known[id].hook_left
    alive = below(members, roots) - set(plan.ends)
    for id in plan.waits:
        assert any(member.parent_id == id and member.id in alive for member in members)


@given(trees(), st.data())
def test_expiry_takes_what_rests_and_stops_only_those_whose_type_or_parent_asks_for_it(
    members: list[Member], data: st.DataObject
) -> None:
    roots = some_roots(data, members)
    plan = plan_expiry(members, roots)
    known = {member.id: member for member in members}
    tree = below(members, roots)
    assert set(plan.expires) == {id for id in tree if known[id].rests}

    def cancels(id: int | None) -> bool:
        return id in tree and (known[id].on_parent_expiry == "cancel" or cancels(known[id].parent_id))

    assert set(plan.stops) == {id for id in tree if not known[id].rests and cancels(id)}
    place = {id: index for index, id in enumerate(plan.expires)}
    for id, index in place.items():
        assert index < place.get(known[id].parent_id or 0, len(place))


# What a parent does next


@given(
    st.sampled_from(Status),
    st.sampled_from([None, *(r for r in StopReason if r.ends_task)]),
    st.booleans(),
    st.booleans(),
)
def test_a_waiting_parent_without_children_always_continues(
    status: Status, stop: StopReason | None, finalizing: bool, hook_left: bool
) -> None:
    step = next_step(status, stop, finalizing=finalizing, hook_left=hook_left)
    assert (step == "stay") == (status is not Status.WAITING)
    if status is Status.WAITING:
        expected = {None: "finalize" if finalizing else "end", StopReason.FAIL: "end"}.get(
            stop, "hook" if hook_left else "stop"
        )
        assert step == expected


verdicts: st.SearchStrategy[Verdict] = st.one_of(
    st.builds(End, st.just(Ending.COMPLETED), st.sampled_from(["null", "1"])),
    st.builds(End, st.sampled_from([Ending.FAILED, Ending.DEAD_LETTER, Ending.CANCELLED]), st.none(), st.just("no")),
    st.just(TryAgain("no", None)),
    st.just(Return()),
)
families = st.none() | st.builds(Family, st.integers(1, 3), st.sampled_from([0, 1]), st.sampled_from(["null", "7"]))


@given(verdicts, families, st.booleans(), st.booleans())
def test_only_success_waits_for_children_and_no_result_is_lost(
    verdict: Verdict, family: Family | None, finalizes: bool, spawned: bool
) -> None:
    answer = family_verdict(verdict, family, finalizes=finalizes, spawned_now=spawned)
    if not (isinstance(verdict, End) and verdict.ending is Ending.COMPLETED):
        assert answer == verdict
        return
    finalizing = family is not None and bool(family.finalizing)
    result = verdict.result
    if finalizing and family is not None and result == "null":
        result = family.result
    if finalizing and not spawned:
        assert answer == End(Ending.COMPLETED, result)
    else:
        assert answer == Wait(result, finalizes)


# What children inherit

tags = st.none() | st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3)


@given(
    st.integers(0, 255),
    st.none() | st.integers(1, 9),
    tags,
    st.integers(0, 255),
    st.none() | st.integers(1, 9),
    tags,
    st.booleans(),
)
def test_a_child_is_as_urgent_as_its_parent_no_fresher_and_tagged_alike(
    urgency: int,
    deadline: int | None,
    parent_tags: dict[str, str] | None,
    priority: int,
    own: int | None,
    own_tags: dict[str, str] | None,
    own_ttl: bool,
) -> None:
    changes: dict[str, Any] = {"expires_at": own, "tags": own_tags, "links": Links(own_ttl=own_ttl, ref="r")}
    task: NewTask = msgspec.structs.replace(new_task(None, priority, OnDuplicate.SKIP, "{}"), **changes)
    child = inherit(task, 5, ParentTraits(urgency, deadline, parent_tags))
    assert child.priority == min(priority, urgency)
    assert child.links is not None
    assert (child.links.parent_id, child.links.ref) == (5, "r")
    assert child.expires_at == (own if own_ttl or deadline is None else deadline)
    assert (child.tags or {}) == {**(parent_tags or {}), **(own_tags or {})}
