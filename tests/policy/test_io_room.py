"""Laws of the IO limit."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from taskmill.model.io_budget import AXES, IoBudget
from taskmill.model.machine import UNKNOWN_CAPACITY, Capacity
from taskmill.policy.io_room import IoHold, IoLoad, IoRoom

amounts = st.sampled_from([0, 0, 1, 40, 100, 160, 161, 1000])
budgets = st.builds(IoBudget, amounts, amounts, amounts, amounts)
some_budgets = st.lists(st.none() | budgets, max_size=12)
rates = st.sampled_from([0.0, 1.0, 50.0, 100.0, 1000.0])
capacities = st.builds(Capacity, rates, rates, rates, rates)

HUNDRED = Capacity(100.0, 100.0, 100.0, 100.0)
"""160 bytes may be under way on each axis: 80 % of what it moves in two seconds."""


def _starts(queue: Sequence[IoBudget | None], running: Sequence[IoBudget | None], capacity: Capacity) -> list[bool]:
    gate = IoRoom(capacity, IoLoad(running))
    return [gate.admit(budget) is None for budget in queue]


def test_running_and_candidate_fit_into_four_fifths_of_two_seconds() -> None:
    assert _starts([IoBudget(60)], [IoBudget(100)], HUNDRED) == [True]
    assert _starts([IoBudget(61)], [IoBudget(100)], HUNDRED) == [False]
    assert _starts([IoBudget(80), IoBudget(80), IoBudget(1)], [], HUNDRED) == [True, True, False]


def test_a_hold_carries_the_numbers() -> None:
    gate = IoRoom(HUNDRED, IoLoad([IoBudget(net_rx=100)]))
    assert gate.admit(IoBudget(net_rx=61)) == IoHold("net_rx", running=100, ahead=0, wanted=61, allowed=160)
    second = gate.admit(IoBudget(net_rx=10))
    assert second == IoHold("net_rx", running=100, ahead=61, wanted=10, allowed=160)
    assert second.as_hold().reason == "io"
    assert second.as_hold().detail == (
        "it will receive 10 B (net_rx); running tasks already use 100 B, and tasks ahead of it reserve 61 B, "
        "of the 160 B allowed at once"
    )


def test_a_task_larger_than_the_window_runs_alone() -> None:
    assert _starts([IoBudget(10**12), IoBudget(1)], [], HUNDRED) == [True, False]
    assert _starts([IoBudget(10**12)], [IoBudget(disk_write=160)], HUNDRED) == [True]
    assert _starts([IoBudget(10**12)], [IoBudget(disk_read=1)], HUNDRED) == [False]


def test_small_tasks_never_overtake_a_large_one_on_its_axis_forever() -> None:
    running = [IoBudget(50), IoBudget(50)]
    large, small = IoBudget(150), IoBudget(10)
    assert _starts([large, small, small], running, HUNDRED) == [False, False, False]
    assert _starts([large, small, small], running[:1], HUNDRED) == [False, False, False]
    assert _starts([large, small, small], [], HUNDRED) == [True, True, False]


def test_a_task_that_waits_on_one_axis_keeps_its_room_on_the_others() -> None:
    both = IoBudget(disk_read=100, net_tx=100)
    running = [IoBudget(disk_read=100)]
    tasks = [both, IoBudget(net_tx=60), IoBudget(net_tx=1), IoBudget(disk_write=150), None]
    assert _starts(tasks, running, HUNDRED) == [False, True, False, True, True]


@given(some_budgets, some_budgets, capacities)
def test_a_task_without_a_budget_is_never_held(
    queue: list[IoBudget | None], running: list[IoBudget | None], capacity: Capacity
) -> None:
    starts = _starts(queue, running, capacity)
    assert all(start for budget, start in zip(queue, starts, strict=True) if budget is None or not budget.axes())


@given(some_budgets, some_budgets)
def test_an_unknown_capacity_holds_no_task_back(queue: list[IoBudget | None], running: list[IoBudget | None]) -> None:
    assert all(_starts(queue, running, UNKNOWN_CAPACITY))


@given(some_budgets, some_budgets, capacities)
def test_a_task_is_held_only_by_an_axis_that_it_uses_and_others_use_before_it(
    queue: list[IoBudget | None], running: list[IoBudget | None], capacity: Capacity
) -> None:
    gate, before = IoRoom(capacity, IoLoad(running)), list(running)
    for budget in queue:
        hold = gate.admit(budget)
        if hold is not None:
            assert budget is not None
            assert hold.wanted == getattr(budget, hold.axis) > 0
            assert any(other is not None and getattr(other, hold.axis) for other in before)
            assert hold.running + hold.ahead + hold.wanted > hold.allowed
            assert hold.allowed == int(capacity.on(hold.axis) * 1.6) > 0
        before.append(budget)


@given(some_budgets, some_budgets, capacities)
def test_tasks_that_run_together_fit_or_are_alone_on_their_axis(
    queue: list[IoBudget | None], running: list[IoBudget | None], capacity: Capacity
) -> None:
    starts = _starts(queue, running, capacity)
    started = [budget for budget, start in zip(queue, starts, strict=True) if start and budget is not None]
    for axis in AXES:
        new = [getattr(budget, axis) for budget in started if getattr(budget, axis)]
        old = [getattr(budget, axis) for budget in running if budget is not None and getattr(budget, axis)]
        if new and capacity.on(axis) and len(new) + len(old) > 1:
            assert sum(new) + sum(old) <= capacity.on(axis) * 1.6


@given(some_budgets, some_budgets, capacities)
def test_no_later_task_delays_an_earlier_one(
    queue: list[IoBudget | None], running: list[IoBudget | None], capacity: Capacity
) -> None:
    """Whatever starts after a held task, that task can start as soon as the tasks that ran before it have ended."""
    starts = _starts(queue, running, capacity)
    if all(starts):
        return
    first = starts.index(False)
    later = [budget for budget, start in list(zip(queue, starts, strict=True))[first + 1 :] if start]
    before = queue[:first]
    alone = _starts([queue[first]], before, capacity)
    with_later = _starts([queue[first]], [*before, *later], capacity)
    # Later tasks may only use what it leaves, so if it fits without them, it fits beside them.
    assert with_later == alone


@given(some_budgets, capacities, st.integers(1, 4), st.data())
def test_every_finite_queue_drains(
    queue: list[IoBudget | None], capacity: Capacity, slots: int, data: st.DataObject
) -> None:
    waiting, running, steps = list(queue), list[IoBudget | None](), 0
    while waiting or running:
        gate, still_waiting = IoRoom(capacity, IoLoad(running)), []
        for budget in waiting:
            if len(running) < slots and gate.admit(budget) is None:
                running.append(budget)
            else:
                still_waiting.append(budget)
        waiting = still_waiting
        assert running
        running.pop(data.draw(st.integers(0, len(running) - 1)))
        steps += 1
    assert steps == len(queue)


@given(st.lists(st.tuples(st.booleans(), st.none() | budgets)))
def test_the_load_is_the_sum_of_what_runs(changes: list[tuple[bool, IoBudget | None]]) -> None:
    load, running = IoLoad(), list[IoBudget | None]()
    for starts, budget in changes:
        if starts or not running:
            running.append(budget)
            load.add(budget)
        else:
            load.remove(running.pop())
    fresh = IoLoad(running)
    assert (load.amounts, load.counts) == (fresh.amounts, fresh.counts)


@given(capacities, some_budgets, some_budgets, some_budgets)
@example(  # The other waits behind the second task that sends, and the third one then fills the disk too.
    Capacity(0.0, 1.0, 0.0, 1.0),
    [],
    [IoBudget(net_tx=1), IoBudget(net_tx=1), IoBudget(disk_write=1)],
    [IoBudget(disk_write=1, net_tx=1)],
)
def test_a_task_behind_a_held_one_is_held_without_a_check_and_stays_behind(
    capacity: Capacity, running: list[IoBudget | None], queue: list[IoBudget | None], others: list[IoBudget | None]
) -> None:
    gate = IoRoom(capacity, IoLoad(running))
    behind: list[IoBudget | None] = []
    for budget in queue:
        was_behind = gate.is_behind(budget)
        held = gate.admit(budget)
        assert was_behind == (held is not None and held.ahead > 0)
        behind += [other for other in others if gate.is_behind(other)]
        assert all(gate.is_behind(other) for other in behind)
        assert gate.keeps_room or not behind


@given(some_budgets, some_budgets)
def test_a_load_without_some_is_that_of_the_others(
    staying: list[IoBudget | None], going: list[IoBudget | None]
) -> None:
    load, other = IoLoad([*staying, *going]), IoLoad(staying)
    left = load.without(going)
    assert (left.amounts, left.counts) == (other.amounts, other.counts)
    assert load.amounts == IoLoad([*going, *staying]).amounts, "the load itself is as it was"
