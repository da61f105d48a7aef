"""Laws of picking: limits hold, no slot is wasted, the order is right, and remembered candidates are valid."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmill import Aging, Group, RateLimit
from taskmill.dispatch.limits import Limits
from taskmill.model.controls import EVERYTHING, Declared
from taskmill.model.task import Lane, Waiting
from taskmill.model.type_name import domain_of
from taskmill.policy.aging import is_urgent
from tests.repetition import often
from tests.runtime.picking.stories import GROUPS, Step, declarations, fronts, plain, shared, stories
from tests.runtime.picking.world import World

pytestmark = pytest.mark.one_engine("no store is opened")


@settings(max_examples=often(25))
@given(declarations, fronts, stories)
def test_no_start_passes_over_slots_caps_rates_pauses_or_handlers(
    declared: Declared, front: int, story: list[Step]
) -> None:
    world = World(declared, front_size=front)
    for step in story:
        step(world)
        before = list(world.running)
        for pick in world.fill():
            # Check each start against the state before it.
            world.running, after = before, world.running
            # The world itself checks that no permit is missing.
            rules, domain = world.rules, domain_of(pick.type)
            cap, domain_cap = rules.group(pick.group).cap, rules.domain_cap(domain)
            assert len(before) < world.slots
            assert cap is None or sum(task.group == pick.group for task in before) < cap
            assert domain_cap is None or sum(domain_of(task.type) == domain for task in before) < domain_cap
            assert not rules.pauses(pick.group, pick.type)
            assert pick.type not in world.unknown
            world.running = after
            before = [*before, next(task for task in after if task.id == pick.id)]


@settings(max_examples=often(31))
@given(declarations, fronts, stories)
def test_no_slot_stays_free_while_anything_may_start(declared: Declared, front: int, story: list[Step]) -> None:
    world = World(declared, front_size=front)
    for step in story:
        step(world)
        world.fill()
        if len(world.running) < world.slots:
            assert world.startable() == []
        else:
            assert world.picker.pick(world.slots, 0, world.now) == []


@settings(max_examples=often(31))
@given(declarations, stories)
def test_inside_a_group_the_most_urgent_then_the_longest_waiting_starts(declared: Declared, story: list[Step]) -> None:
    world = World(declared)
    for step in story:
        step(world)
        waiting = list(world.waiting())
        for pick in world.fill():
            lane, place = next((lane, place) for lane, place in waiting if place.id == pick.id)
            waiting.remove((lane, place))
            before = [
                (other, earlier)
                for other, earlier in waiting
                if other.group == lane.group and world.order(other, earlier) < world.order(lane, place)
            ]
            # A task that was passed over could not start then, and cannot now: only time and endings free a limit.
            assert [place for other, place in before if world.is_open(other)] == []


@settings(max_examples=often(25))
@given(plain, stories)
def test_without_shares_the_most_urgent_of_all_starts_first(declared: Declared, story: list[Step]) -> None:
    world = World(declared)
    for step in story:
        step(world)
        waiting = {place.id: (lane, place) for lane, place in world.waiting()}
        for pick in world.fill():
            if world.rules.is_shared:
                continue
            effective = world.effective(*waiting.pop(pick.id))
            passed_over = [lane for lane, place in waiting.values() if world.effective(lane, place) < effective]
            assert [lane for lane in passed_over if world.is_open(lane)] == []


@settings(max_examples=often(31))
@given(declarations, fronts, stories)
def test_remembered_candidates_equal_those_of_a_new_picker(declared: Declared, front: int, story: list[Step]) -> None:
    world = World(declared, front_size=front)
    for step in story:
        step(world)
        world.turn()
        remembered, found = world.candidates(), world.afresh().candidates()
        # A domain or a type that others have used up is noticed only at the group's turn.
        overtaken = {
            group for group, candidate in remembered.items() if not world.picker.limits.is_open(candidate.lane)
        }
        for candidates in (remembered, found):
            for group in overtaken:
                candidates.pop(group, None)
        if not world.rules.is_shared:
            assert remembered == found
        else:
            # If slots are shared, the next task inside a group is chosen at the group's turn.
            assert remembered.keys() == found.keys()
            for group, candidate in found.items():
                assert passes_over_shares(world, remembered[group]) == passes_over_shares(world, candidate)


def passes_over_shares(world: World, candidate: Waiting) -> tuple[bool, bool]:
    effective = candidate.effective
    return effective <= world.declared.preempt_at, is_urgent(world.declared.aging, effective)


@settings(max_examples=often(37))
@given(shared, stories)
def test_shares_equal_those_of_a_new_picker(declared: Declared, story: list[Step]) -> None:
    world = World(declared)
    for step in story:
        step(world)
        world.fill()
        if not world.rules.is_shared or world.rules.is_paused(EVERYTHING) or len(world.running) >= world.slots:
            # If no slot is free, limits that others have used up may not have been noticed yet.
            continue
        fresh = world.afresh()
        world.candidates(), fresh.candidates()
        assert {group: world.picker.shares.slots_of(group) for group in GROUPS} == {
            group: fresh.picker.shares.slots_of(group) for group in GROUPS
        }


@settings(max_examples=often(25))
@given(declarations, stories, st.permutations(GROUPS))
def test_neither_names_nor_the_order_of_arrival_in_memory_decide_which_task_starts(
    declared: Declared, story: list[Step], order: list[str]
) -> None:
    world = World(declared)
    for step in story:
        step(world)
    world.turn()
    other = world.afresh()
    other.front.groups = {group: other.front.groups[group] for group in order if group in other.front.groups}
    assert other.candidates() == world.afresh().candidates()


@pytest.mark.parametrize("priority", [0, 128])
def test_equally_urgent_groups_take_turns_however_much_each_has_waiting(priority: int) -> None:
    world = World(Declared(max_concurrency=1))
    backlog = {"a": 300, "b": 30, "c": 5, "": 1}
    for group, count in backlog.items():
        for _ in range(count):
            world.submit(group, priority)
    order: list[str] = []
    while started := world.fill():
        order += [pick.group for pick in started]
        world.now += 1
        world.end(world.running[0])
    for end in range(len(order)):
        served = Counter(order[:end])
        hungry = [served[group] for group in backlog if served[group] < backlog[group]]
        assert not hungry or max(hungry) - min(hungry) <= 1


def test_a_group_that_comes_and_goes_gains_no_turns_without_shares() -> None:
    world = World(Declared(max_concurrency=1))
    for _ in range(300):
        world.submit("steady")
    order: list[str] = []
    for _ in range(200):
        if not any(lane.group == "fickle" for lane in world.disk):
            world.submit("fickle")
        order += [pick.group for pick in world.fill()]
        world.now += 1
        world.end(world.running[0])
    assert 95 <= Counter(order)["fickle"] <= 105


def test_more_slots_are_used_at_the_next_turn_and_fewer_are_never_exceeded_by_a_start() -> None:
    world = World(Declared(max_concurrency=2, groups={"a": Group(weight=3)}))
    for _ in range(20):
        world.submit("a"), world.submit("b")
    assert len(world.fill()) == 2
    world.rule(max_concurrency=8)
    world.fill()
    assert Counter(task.group for task in world.running) == {"a": 6, "b": 2}
    world.rule(max_concurrency=3)
    for _ in range(6):
        world.end(world.running[0])
        world.fill()
    assert len(world.running) == 3


def test_inside_a_group_with_a_share_one_that_grew_as_urgent_and_waits_longer_is_first() -> None:
    aging = Aging(grace=10, interval=1, step=10, ceiling=64)
    world = World(Declared(max_concurrency=1, groups={"a": Group(weight=2)}, aging=aging))
    world.submit("b")
    world.fill()
    older = world.submit("a", 192)
    world.now += 5_000
    world.submit("a", 64)
    world.fill()
    world.now += 60_000
    world.end(world.running[0])
    assert [pick.id for pick in world.fill()] == [older]


@pytest.mark.parametrize("groups", [{}, {"a": Group(weight=2)}])
def test_of_replaced_tasks_the_one_whose_new_wait_is_the_longest_ages_first(groups: dict[str, Group]) -> None:
    aging = Aging(grace=10, interval=10, step=10, ceiling=64, urgent=130)
    world = World(Declared(max_concurrency=1, groups=groups, aging=aging))
    world.submit("b", 64)
    world.fill()
    world.now += 20_000
    second = world.submit("a", 140, renewed=True, age=10_000)
    world.now += 5_000
    world.submit("a", 140, renewed=True, age=20_000)
    world.fill()
    # Both have the places of replaced tasks; the one that is later in the queue has aged by a step, the other not yet.
    world.now += 16_000
    for _ in range(3):
        world.submit("c", 131)
    world.end(world.running[0])
    assert [pick.id for pick in world.fill()] == [second]


def test_a_permit_promised_to_a_task_that_is_gone_is_there_for_another_group_at_once() -> None:
    world = World(Declared(rates={"d::t": RateLimit(1, 10)}))
    world.submit("a")
    ((lane, place),) = world.waiting()
    world.submit("b", 192)
    world.cancel(lane, place)
    assert [pick.group for pick in world.fill()] == ["b"]


def test_a_group_that_drained_while_nothing_was_shared_claims_nothing_afterwards() -> None:
    world = World(Declared(max_concurrency=2, groups={"a": Group(weight=3)}))
    for _ in range(3):
        world.submit("a")
    world.fill()
    world.rule(groups={})
    while world.running:
        world.end(world.running[0])
        world.fill()
    world.rule(groups={"a": Group(weight=3)})
    world.submit("b"), world.submit("b")
    assert len(world.fill()) == 2


@pytest.mark.parametrize("declared", [Declared(), Declared(aging=Aging()), Declared(groups={"a": Group(weight=2)})])
def test_a_start_costs_no_look_at_every_lane_of_its_group(declared: Declared, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Lane] = []
    is_open = Limits.is_open

    def counted(limits: Limits, lane: Lane) -> bool:
        looks.append(lane)
        return is_open(limits, lane)

    monkeypatch.setattr(Limits, "is_open", counted)
    world = World(declared)
    lanes = 500
    for i in range(lanes):
        world.submit("a", type=f"d::t{i}")
    while world.startable():
        world.fill()
        for task in list(world.running):
            world.end(task)
    assert len(world.starts) == lanes
    assert len(looks) <= 4 * lanes
