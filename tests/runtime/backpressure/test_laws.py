"""Laws of waiting for the machine: pressure and budgets hold exactly the tasks that they should."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from taskmill import Aging, Group
from taskmill.model.controls import Declared, Scope, ScopeKind
from taskmill.model.io_budget import AXES, LEARN, IoBudget
from taskmill.model.machine import UNKNOWN_CAPACITY, Capacity
from taskmill.model.task import Lane, Place
from taskmill.policy.io_room import SHARE, WINDOW_SECONDS, IoRoom
from tests.repetition import often
from tests.runtime.picking.stories import (
    TYPES,
    Step,
    agings,
    declarations,
    ends,
    fronts,
    has_slots,
    indices,
    knows_or_not,
    passes,
    pauses,
    resumptions,
    steps,
    submissions,
    tasks,
)
from tests.runtime.picking.world import Look, Running, World

pytestmark = pytest.mark.one_engine("no store is opened")

MB = 1_000_000
CAPACITY = Capacity(disk_read=50.0 * MB, disk_write=100.0 * MB)
"""80 MB read and 160 MB written at once; the network is unknown."""

budgets = st.one_of(
    st.none(),
    st.just(LEARN),
    st.builds(
        IoBudget,
        disk_read=st.sampled_from([0, 0, 10 * MB, 60 * MB, 500 * MB]),
        disk_write=st.sampled_from([0, 30 * MB, 100 * MB, 160 * MB, 10_000 * MB]),
        net_tx=st.sampled_from([0, 0, 7 * MB]),
    ),
)
looks = st.tuples(
    st.sampled_from([0.0, 0.3, 0.5, 0.6, 0.75, 0.9, 1.0]),
    st.sampled_from(
        [CAPACITY, CAPACITY, UNKNOWN_CAPACITY, Capacity(1.0, 1.0, 1.0, 1.0), Capacity(disk_write=1e9, net_tx=4e6)]
    ),
).map(lambda seen: Look(*seen))


def submits_with(count: int, task: tuple[str, int, str], io: IoBudget | str | None, age: int | None) -> Step:
    def act(world: World) -> None:
        for _ in range(count):
            world.submit(*task, renewed=age is not None, age=age or 0, io=io)

    return Step("submit", act, count, task, io, age)


def sees(look: Look) -> Step:
    return Step("see", lambda world: world.see(look), look)


def learns(type: str, moved: IoBudget) -> Step:
    return Step("learn", lambda world: world.learn(type, moved), type, moved)


def submits_elsewhere(task: tuple[str, int, str], io: IoBudget | str | None) -> Step:
    return Step("submit elsewhere", lambda world: world.submit_elsewhere(*task, io), task, io)


ages = st.sampled_from([None, None, 3000, 20_000])
with_budgets = st.builds(submits_with, st.integers(1, 4), tasks, budgets, ages)
of_machine: list[st.SearchStrategy[Step]] = [
    looks.map(sees),
    looks.map(sees),
    with_budgets,
    st.builds(submits_elsewhere, tasks, budgets),
    st.builds(
        learns, st.sampled_from(TYPES), st.builds(IoBudget, disk_write=st.sampled_from([0, 20 * MB, 90 * MB, 10**12]))
    ),
    indices.map(ends),
    indices.map(ends),
]
machine_steps = st.one_of(steps, st.sampled_from(of_machine).flatmap(lambda kind: kind))
machine_stories = st.builds(
    lambda first, backlog, story: [sees(first), *backlog, *story],
    looks,
    st.lists(st.one_of(with_budgets, submissions), min_size=4, max_size=8),
    st.lists(machine_steps, min_size=10, max_size=20),
)


# The rules, written a second time, independently of the code under test.


def is_held_by_pressure(world: World, effective: int) -> bool:
    pressure = 0.0 if world.seen is None else world.seen.pressure
    return any(effective >= limit.priority and pressure > limit.pressure for limit in world.throttle.by_urgency)


def allowed(world: World) -> dict[str, float | None]:
    """Return, by axis, the bytes that may be in progress at once; None if the capacity is unknown."""
    capacity = UNKNOWN_CAPACITY if world.seen is None else world.seen.capacity
    return {axis: int(rate * WINDOW_SECONDS * SHARE) if (rate := capacity.on(axis)) else None for axis in AXES}


def moved_on(axis: str, those: Iterable[Running]) -> list[int]:
    amounts = [getattr(task.budget, axis) for task in those if task.budget is not None]
    return [amount for amount in amounts if amount]


def ready(world: World) -> list[tuple[Lane, Place]]:
    """Return the waiting tasks in the front that only their budgets may hold."""
    return [
        (lane, place)
        for lane, place in world.startable()
        if not is_held_by_pressure(world, world.effective(lane, place))
        if place in world.front.of(lane.group)[lane].places
    ]


@settings(max_examples=often(33))
@given(declarations, fronts, machine_stories)
def test_no_task_starts_that_waits_for_the_pressure_to_fall_or_does_not_fit(
    declared: Declared, front: int, story: list[Step]
) -> None:
    world = World(declared, front_size=front)
    for step in story:
        step(world)
        before = list(world.running)
        for pick in world.fill():
            assert not is_held_by_pressure(world, pick.effective)
            started = next(task for task in world.running if task.id == pick.id)
            for axis, most in allowed(world).items():
                beside, own = moved_on(axis, before), moved_on(axis, [started])
                assert not own or not beside or most is None or sum(beside + own) <= most, "neither alone nor fitting"
            before.append(started)


@settings(max_examples=often(33))
@given(declarations, fronts, machine_stories)
def test_no_task_is_held_on_an_axis_where_it_has_no_budget_and_one_always_runs(
    declared: Declared, front: int, story: list[Step]
) -> None:
    world = World(declared, front_size=front)
    for step in story:
        step(world)
        world.fill()
        if len(world.running) >= world.slots:
            continue
        waiting = ready(world)
        for lane, place in waiting:
            budget = world.backpressure.budget_of(lane.type, place.io)
            assert budget is not None, "nothing holds it"
            others = [
                other
                for other_lane, other_place in waiting
                if other_place.id != place.id
                if (other := world.backpressure.budget_of(other_lane.type, other_place.io)) is not None
            ]
            reasons = [
                axis
                for axis, most in allowed(world).items()
                if (own := getattr(budget, axis)) and most is not None
                # Capacity is kept on every axis for a task that waits because of another axis.
                if (beside := moved_on(axis, world.running) + [wanted for o in others if (wanted := getattr(o, axis))])
                if sum(beside) + own > most
            ]
            assert reasons, "it fits beside the running tasks and those before it"


@settings(max_examples=often(25))
@given(declarations, fronts, machine_stories)
def test_every_queue_drains_when_the_pressure_has_fallen(declared: Declared, front: int, story: list[Step]) -> None:
    world = World(declared, front_size=front)
    for step in story:
        step(world)
        world.fill()
    for scope in list(world.pauses):
        world.resume(scope)
    for type in sorted(world.unknown):
        knows_or_not(type)(world)
    capacity = UNKNOWN_CAPACITY if world.seen is None else world.seen.capacity
    world.see(Look(0.2, capacity))
    left = sum(1 for _ in world.waiting())
    # At least one permit per step, even with the slowest rate.
    for _ in range(left + 2):
        world.fill()
        for task in list(world.running):
            world.end(task)
        passes(12_000)(world)
    assert list(world.waiting()) == []
    assert world.load.io.amounts == [0, 0, 0, 0], "an ended task returns its budget"
    assert world.load.io.counts == [0, 0, 0, 0]


alone = st.builds(Declared, max_concurrency=st.integers(1, 6), aging=agings)
one_group = st.tuples(st.just(""), st.sampled_from([64, 128, 192]), st.sampled_from(TYPES))
writes = st.sampled_from([None, LEARN, *(IoBudget(disk_write=mb * MB) for mb in (30, 60, 100, 200))])
one_group_steps = st.one_of(
    *[st.builds(submits_with, st.integers(1, 3), one_group, writes, ages)] * 3,
    st.builds(submits_elsewhere, one_group, writes),
    indices.map(ends),
    looks.map(sees),
    st.sampled_from([1, 1000, 12_000]).map(passes),
    of_machine[4],
    st.sampled_from(["d::u", "e::t"]).map(knows_or_not),
    st.builds(Scope, st.just(ScopeKind.DOMAIN), st.just("d")).map(pauses),
    resumptions,
    st.integers(1, 6).map(has_slots),
)


@settings(max_examples=often(50))
@given(alone, st.lists(one_group_steps, min_size=5, max_size=25))
def test_a_picker_made_anew_would_start_nothing_that_this_one_holds_back(declared: Declared, story: list[Step]) -> None:
    """Checked in one group, where the order of the queue is the same for both."""
    world = World(declared)
    for step in [sees(Look(capacity=CAPACITY)), *story]:
        step(world)
        world.fill()
        fresh = world.afresh()
        assert fresh.picker.pick(world.slots, world.slots - len(world.running), world.now) == []


@example(Aging(grace=5, interval=1, step=40, ceiling=0), Group(weight=2))
@given(agings, st.sampled_from([Group(), Group(weight=3), Group(min_slots=1)]))
def test_a_budget_that_was_just_found_not_to_fit_in_one_group_does_not_fit_in_another(
    aging: Aging | None, group: Group
) -> None:
    world = World(Declared(max_concurrency=4, groups={"a": group}, aging=aging))
    world.see(Look(capacity=CAPACITY))
    large = IoBudget(disk_write=100 * MB)
    for name in ("a", "b", "c"):
        for priority in (64, 128):
            world.submit(name, priority, io=large)
    assert len(world.fill()) == 1


def test_budgets_that_all_differ_cost_no_more_than_equal_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[IoBudget | None] = []
    admit = IoRoom.admit

    def counted(gate: IoRoom, budget: IoBudget | None) -> object:
        asked.append(budget)
        return admit(gate, budget)

    monkeypatch.setattr(IoRoom, "admit", counted)
    world = World(Declared(max_concurrency=8))
    world.see(Look(capacity=CAPACITY))
    world.submit("", 0, io=IoBudget(disk_write=150 * MB))
    world.fill()
    for i in range(500):
        world.submit("", io=IoBudget(disk_write=100 * MB + i))
    asked.clear()
    world.turn()
    assert len(asked) <= 2


def test_behind_one_that_waits_for_two_axes_a_small_one_may_pass_where_room_is_left() -> None:
    world = World(Declared(max_concurrency=8))
    world.see(Look(capacity=Capacity(disk_write=100.0 * MB, net_tx=100.0 * MB)))
    world.submit("", 0, io=IoBudget(disk_write=150 * MB))
    world.submit("", 1, io=IoBudget(disk_write=50 * MB, net_tx=100 * MB))
    large = world.submit("", 2, io=IoBudget(net_tx=100 * MB))
    small = world.submit("", 3, io=IoBudget(net_tx=50 * MB))
    world.fill()
    running = [task.id for task in world.running]
    assert small in running
    assert large not in running


def test_a_type_that_turns_out_to_move_less_is_held_no_longer() -> None:
    world = World(Declared(max_concurrency=8))
    world.see(Look(capacity=CAPACITY))
    world.learn("d::t", IoBudget(disk_write=100 * MB))
    world.submit("", 0, "d::u", io=IoBudget(disk_write=100 * MB))
    world.submit("", io=LEARN)
    first = len(world.fill())
    world.learn("d::t", IoBudget(disk_write=10 * MB))
    assert (first, len(world.fill())) == (1, 1)
