"""Laws of making way."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from taskmill.model.cluster import NOBODY, Others
from taskmill.model.io_budget import IoBudget
from taskmill.model.readings import Capacity
from taskmill.model.stages import Claimed
from taskmill.policy.io_gate import IoGate, IoLoad
from taskmill.policy.preemption import PATIENCE_MS, Pressing, served_here, victims

_ROW = [1, 1, "d::t", None, None, "", 128, "{}", None, None, 0, 0, 0, 0, None, None, 0, None, None, None]
_ROW += [None, None, 128, None, 0, None, 1]
TASK = msgspec.convert(_ROW, Claimed)


def running(id: int, effective: int, started_at: int = 0, stop: str | None = None) -> Claimed:
    return msgspec.structs.replace(TASK, id=id, effective=effective, started_at=started_at, stop=stop)


@st.composite
def crowds(draw: st.DrawFn) -> list[tuple[Claimed, bool]]:
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 5), st.integers(0, 5), st.booleans(), st.sampled_from([None, None, "cancel", "fail"])
            ),
            max_size=8,
        )
    )
    return [
        (running(id, effective, started_at, stop), asked or stop is not None)
        for id, (effective, started_at, asked, stop) in enumerate(rows, 1)
    ]


preemptors = st.lists(st.integers(0, 5).map(Pressing), max_size=8).map(sorted)


@given(preemptors, crowds())
def test_everyone_who_makes_way_is_less_urgent_than_whom_it_makes_way_for(
    pressing: list[Pressing], crowd: list[tuple[Claimed, bool]]
) -> None:
    chosen = victims(pressing, crowd)
    by_id = {task.id: (task, asked) for task, asked in crowd}
    stopping = sum(asked for _, asked in crowd)
    assert len(chosen) == len(set(chosen)) <= max(0, len(pressing) - stopping), "no slot is freed twice"
    for id, presser in zip(chosen, pressing[stopping:], strict=False):
        task, asked = by_id[id]
        assert task.effective > presser.effective
        assert not asked, "nobody is asked twice"
        assert task.stop is None


@given(preemptors, crowds())
def test_the_least_urgent_then_the_youngest_make_way(
    pressing: list[Pressing], crowd: list[tuple[Claimed, bool]]
) -> None:
    chosen = victims(pressing, crowd)
    free = [task for task, asked in crowd if not asked]
    spared = [task for task in free if task.id not in chosen]
    key = {task.id: (task.effective, task.started_at, task.id) for task in free}
    assert all(key[id] > key[task.id] for id in chosen for task in spared)
    assert [key[id] for id in chosen] == sorted((key[id] for id in chosen), reverse=True)


@given(preemptors, crowds())
def test_as_many_make_way_as_can_and_must(pressing: list[Pressing], crowd: list[tuple[Claimed, bool]]) -> None:
    chosen = victims(pressing, crowd)
    stopping = sum(asked for _, asked in crowd)
    left = pressing[stopping + len(chosen) :]
    spared = [task for task, asked in crowd if not asked and task.id not in chosen]
    assert not left or all(task.effective <= left[0].effective for task in spared)


@given(preemptors, crowds(), st.randoms())
def test_the_order_in_which_tasks_run_does_not_matter(
    pressing: list[Pressing], crowd: list[tuple[Claimed, bool]], chance: object
) -> None:
    shuffled = list(crowd)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert victims(pressing, shuffled) == victims(pressing, crowd)


def test_nobody_presses_nobody_makes_way() -> None:
    assert victims([], [(running(1, 255), False)]) == []
    assert victims([Pressing(0)], []) == []
    assert victims([Pressing(0)], [(running(1, 0), False)]) == []
    assert victims([Pressing(0)], [(running(1, 255), True), (running(2, 255), False)]) == [], (
        "a slot is about to be free"
    )


MB = 1_000_000
CAPACITY = Capacity(disk_write=100.0 * MB)
"""160 MB may be under way at once."""
amounts = st.sampled_from([0, 0, 30, 90, 150, 1000]).map(lambda mb: IoBudget(disk_write=mb * MB) if mb else None)


@given(
    st.lists(st.tuples(st.integers(0, 5), amounts), max_size=5),
    st.lists(st.tuples(st.integers(0, 5), amounts, st.booleans()), max_size=8),
)
def test_nobody_makes_way_in_vain_for_one_whose_io_does_not_fit(
    waiting: list[tuple[int, IoBudget | None]], crowd: list[tuple[int, IoBudget | None, bool]]
) -> None:
    pressing = sorted((Pressing(*each) for each in waiting), key=lambda presser: presser.effective)
    tasks = [
        (msgspec.structs.replace(running(id, effective), budget=budget), asked)
        for id, (effective, budget, asked) in enumerate(crowd)
    ]
    load = IoLoad(task.budget for task, _ in tasks)
    chosen = victims(pressing, tasks, CAPACITY, load)
    left = load.without(task.budget for task, asked in tasks if asked or task.id in chosen)
    gate = IoGate(CAPACITY, left)
    stopping = sum(asked for _, asked in tasks)
    could_start = [presser for presser in pressing if gate.admit(presser.budget) is None]
    assert len(chosen) <= max(0, len(could_start) - stopping) or not chosen
    assert victims(pressing, tasks) == victims([Pressing(each.effective) for each in pressing], tasks)


def test_the_one_whose_going_makes_room_makes_way() -> None:
    write = IoBudget(disk_write=100 * MB)
    quiet, writes = running(1, 255), msgspec.structs.replace(running(2, 192), budget=write)
    crowd, load = [(quiet, False), (writes, False)], IoLoad([write])
    assert victims([Pressing(0, write)], crowd, CAPACITY, load) == [2]
    assert victims([Pressing(0)], crowd, CAPACITY, load) == [1]
    assert victims([Pressing(192, write)], crowd, CAPACITY, load) == []


def test_nobody_makes_way_for_one_that_stands_behind_another_for_room() -> None:
    large, small = IoBudget(disk_write=150 * MB), IoBudget(disk_write=30 * MB)
    writes = msgspec.structs.replace(running(2, 0), budget=small)
    crowd, load = [(running(1, 0), True), (writes, False), (running(3, 1), False)], IoLoad([small])
    assert victims([Pressing(0), Pressing(0, large), Pressing(0, small)], crowd, CAPACITY, load) == []


# Nodes that dispatch together


@given(
    nodes=st.lists(st.integers(1, 50), min_size=1, max_size=6, unique=True).map(sorted),
    ids=st.lists(st.integers(1, 100), max_size=6, unique=True),
    free=st.integers(0, 7),
)
def test_one_node_makes_way_at_once_for_each_that_has_no_slot_elsewhere(
    nodes: list[int], ids: list[int], free: int
) -> None:
    pressing = [Pressing(0, None, id) for id in ids]
    since = dict.fromkeys(ids, 1000)

    def served(now: int) -> list[int]:
        every = [served_here(pressing, since, Others(nodes, own), free, now) for own in nodes]
        assert all(at is None or at > now for _, at in every)
        return sorted(each.id for ours, _ in every for each in ours)

    assert served(1000) == sorted(ids[free:])
    # Sooner or later everybody would.
    assert served(1000 + len(nodes) * PATIENCE_MS) == sorted(ids * len(nodes))


def test_a_node_that_others_do_not_know_serves_all() -> None:
    pressing = [Pressing(0, None, 7)]
    assert served_here(pressing, {7: 0}, NOBODY, 0, 0) == (pressing, None)
