"""Laws of preemption."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from taskmill.model.cluster import Ask, Host, Runner
from taskmill.model.io_budget import IoBudget
from taskmill.model.machine import Capacity
from taskmill.model.task import Claimed
from taskmill.policy.io_room import IoLoad, IoRoom
from taskmill.policy.preemption import UrgentTask, cluster_victims, victims

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


preemptors = st.lists(st.integers(0, 5).map(UrgentTask), max_size=8).map(sorted)


@given(preemptors, crowds())
def test_a_victim_is_less_urgent_than_its_preemptor(
    pressing: list[UrgentTask], crowd: list[tuple[Claimed, bool]]
) -> None:
    chosen = victims(pressing, crowd)
    by_id = {task.id: (task, asked) for task, asked in crowd}
    stopping = sum(asked for _, asked in crowd)
    assert len(chosen) == len(set(chosen)) <= max(0, len(pressing) - stopping), "no slot is freed twice"
    for id, presser in zip(chosen, pressing[stopping:], strict=False):
        task, asked = by_id[id]
        assert task.effective > presser.effective
        assert not asked, "no task is asked twice"
        assert task.stop is None


@given(preemptors, crowds())
def test_the_least_urgent_then_the_youngest_are_preempted(
    pressing: list[UrgentTask], crowd: list[tuple[Claimed, bool]]
) -> None:
    chosen = victims(pressing, crowd)
    free = [task for task, asked in crowd if not asked]
    spared = [task for task in free if task.id not in chosen]
    key = {task.id: (task.effective, task.started_at, task.id) for task in free}
    assert all(key[id] > key[task.id] for id in chosen for task in spared)
    assert [key[id] for id in chosen] == sorted((key[id] for id in chosen), reverse=True)


@given(preemptors, crowds())
def test_as_many_are_preempted_as_can_and_must(pressing: list[UrgentTask], crowd: list[tuple[Claimed, bool]]) -> None:
    chosen = victims(pressing, crowd)
    stopping = sum(asked for _, asked in crowd)
    left = pressing[stopping + len(chosen) :]
    spared = [task for task, asked in crowd if not asked and task.id not in chosen]
    assert not left or all(task.effective <= left[0].effective for task in spared)


@given(preemptors, crowds(), st.randoms())
def test_the_order_in_which_tasks_run_does_not_matter(
    pressing: list[UrgentTask], crowd: list[tuple[Claimed, bool]], chance: object
) -> None:
    shuffled = list(crowd)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert victims(pressing, shuffled) == victims(pressing, crowd)


def test_without_a_preemptor_no_task_is_preempted() -> None:
    assert victims([], [(running(1, 255), False)]) == []
    assert victims([UrgentTask(0)], []) == []
    assert victims([UrgentTask(0)], [(running(1, 0), False)]) == []
    assert victims([UrgentTask(0)], [(running(1, 255), True), (running(2, 255), False)]) == [], (
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
def test_no_task_is_preempted_in_vain_for_one_whose_io_does_not_fit(
    waiting: list[tuple[int, IoBudget | None]], crowd: list[tuple[int, IoBudget | None, bool]]
) -> None:
    pressing = sorted((UrgentTask(*each) for each in waiting), key=lambda presser: presser.effective)
    tasks = [
        (msgspec.structs.replace(running(id, effective), budget=budget), asked)
        for id, (effective, budget, asked) in enumerate(crowd)
    ]
    load = IoLoad(task.budget for task, _ in tasks)
    chosen = victims(pressing, tasks, CAPACITY, load)
    left = load.without(task.budget for task, asked in tasks if asked or task.id in chosen)
    gate = IoRoom(CAPACITY, left)
    stopping = sum(asked for _, asked in tasks)
    could_start = [presser for presser in pressing if gate.admit(presser.budget) is None]
    assert len(chosen) <= max(0, len(could_start) - stopping) or not chosen
    assert victims(pressing, tasks) == victims([UrgentTask(each.effective) for each in pressing], tasks)


def test_the_task_whose_end_makes_room_is_preempted() -> None:
    write = IoBudget(disk_write=100 * MB)
    quiet, writes = running(1, 255), msgspec.structs.replace(running(2, 192), budget=write)
    crowd, load = [(quiet, False), (writes, False)], IoLoad([write])
    assert victims([UrgentTask(0, write)], crowd, CAPACITY, load) == [2]
    assert victims([UrgentTask(0)], crowd, CAPACITY, load) == [1]
    assert victims([UrgentTask(192, write)], crowd, CAPACITY, load) == []


def test_no_task_is_preempted_for_one_that_is_behind_another_for_room() -> None:
    large, small = IoBudget(disk_write=150 * MB), IoBudget(disk_write=30 * MB)
    writes = msgspec.structs.replace(running(2, 0), budget=small)
    crowd, load = [(running(1, 0), True), (writes, False), (running(3, 1), False)], IoLoad([small])
    assert victims([UrgentTask(0), UrgentTask(0, large), UrgentTask(0, small)], crowd, CAPACITY, load) == []


# Nodes that dispatch together

TYPES = ["d::a", "d::b"]
hosts = st.builds(Host, st.integers(0, 3), st.sets(st.sampled_from(TYPES)).map(frozenset))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Ask], list[Runner], dict[int, Host]]:
    nodes = dict(enumerate(draw(st.lists(hosts, min_size=1, max_size=4)), 1))
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([0, *nodes]), st.booleans()), max_size=8
        )
    )
    running = [Runner(id, *row) for id, row in enumerate(rows, 1)]
    some = st.none() | st.sets(st.integers(1, 8))
    given_asks = draw(
        st.lists(st.tuples(st.integers(0, 5), st.sampled_from(TYPES), st.booleans(), some), max_size=6).map(sorted_asks)
    )
    asks = [Ask(100 + number, *ask) for number, ask in enumerate(given_asks)]
    return asks, running, nodes


def sorted_asks(asks: list[tuple[int, str, bool, set[int] | None]]) -> list[tuple[int, str, bool, set[int] | None]]:
    return sorted(asks, key=lambda ask: ask[0])


@given(clusters())
def test_a_task_is_preempted_once_for_a_more_urgent_one_that_its_node_can_run(
    cluster: tuple[list[Ask], list[Runner], dict[int, Host]],
) -> None:
    asks, running, nodes = cluster
    chosen = cluster_victims(asks, running, nodes, own=1)
    by_id = {task.id: task for task in running}
    excess = sum(
        max(0, sum(task.node == id and not task.is_leaving for task in running) - host.slots)
        for id, host in nodes.items()
    )
    assert len(chosen) == len(set(chosen)) <= len(asks) + excess
    assert not any(by_id[id].is_leaving for id in chosen), "no task is asked twice"
    for id in chosen:
        task = by_id[id]
        assert task.node in nodes
        assert any(
            task.effective > ask.effective
            and ask.type in nodes[task.node].types
            and (ask.candidates is None or id in ask.candidates)
            for ask in asks
        )


@given(clusters())
def test_asking_again_after_the_marks_are_made_chooses_no_other_task(
    cluster: tuple[list[Ask], list[Runner], dict[int, Host]],
) -> None:
    """Every node asks for the same task. If no hooks run beside the slots, the first answer serves all nodes."""
    asks, running, nodes = cluster
    nodes = {id: Host(8, frozenset(TYPES)) for id in nodes}
    asks = [ask._replace(counts_free=False) for ask in asks]
    chosen = cluster_victims(asks, running, nodes, own=1)
    marked = [task._replace(is_leaving=task.is_leaving or task.id in chosen) for task in running]
    assert len(cluster_victims(asks, marked, nodes, own=2)) <= len(asks) - len(chosen)
    if len(chosen) == len(asks):
        assert cluster_victims(asks, marked, nodes, own=2) == []


@given(clusters())
def test_the_least_urgent_of_all_nodes_then_the_youngest_is_preempted(
    cluster: tuple[list[Ask], list[Runner], dict[int, Host]],
) -> None:
    asks, running, nodes = cluster
    load = Counter(task.node for task in running)
    nodes = {id: Host(max(host.slots, load[id]), frozenset(TYPES)) for id, host in nodes.items()}
    asks = [ask._replace(candidates=None) for ask in asks]
    chosen = cluster_victims(asks, running, nodes, own=1)
    key = {task.id: (task.effective, task.started_at, task.id) for task in running if task.node in nodes}
    spared = [task.id for task in running if task.id in key and not task.is_leaving and task.id not in chosen]
    assert all(key[id] > key[other] for id in chosen for other in spared)


def test_a_node_with_fewer_slots_than_tasks_is_spared_if_another_or_none_can_help() -> None:
    def at_work(id: int, effective: int, node: int) -> Runner:
        return Runner(id, effective, id, node, is_leaving=False)

    ask, one = Ask(9, 0, "d::a"), Host(1, {"d::a"})
    crowded = [at_work(1, 200, 1), at_work(2, 200, 1), at_work(3, 200, 1)]
    assert cluster_victims([ask], [*crowded, at_work(4, 199, 2)], {1: one, 2: one}, own=1) == [4]
    assert cluster_victims([ask], crowded, {1: one}, own=1) == [3, 2, 1]
    equals = [at_work(5, 0, 1), at_work(6, 0, 1)]
    assert cluster_victims([ask], [*crowded, *equals], {1: one}, own=1) == []


def test_a_free_slot_of_another_node_is_used_first_for_a_while() -> None:
    nodes = {1: Host(1, {"d::a"}), 2: Host(1, {"d::a"})}
    running = [Runner(1, 255, 0, 1, is_leaving=False)]
    assert cluster_victims([Ask(9, 0, "d::a")], running, nodes, own=1) == []
    assert cluster_victims([Ask(9, 0, "d::a", counts_free=False)], running, nodes, own=1) == [1]


def test_a_hook_beside_the_slots_frees_none() -> None:
    nodes = {1: Host(1, {"d::a"})}
    running = [Runner(1, 255, 0, 1, is_leaving=False), Runner(2, 255, 0, 1, is_leaving=True)]
    assert cluster_victims([Ask(9, 0, "d::a")], running, nodes, own=1) == [1]


@given(st.integers(1, 4), st.integers(0, 4), st.integers(0, 8), st.integers(1, 5))
def test_a_node_with_fewer_slots_than_tasks_preempts_until_slots_are_free(
    slots: int, excess: int, leaving: int, asking: int
) -> None:
    running = [Runner(id, 255, 0, 1, is_leaving=id <= leaving) for id in range(1, slots + excess + 1)]
    asks = [Ask(100 + id, 0, "d::a", counts_free=False) for id in range(asking)]
    nodes = {1: Host(slots, {"d::a"})}
    chosen = cluster_victims(asks, running, nodes, own=1)
    marked = [task._replace(is_leaving=task.is_leaving or task.id in chosen) for task in running]
    must_end = min(excess + asking, len(running))
    assert sum(task.is_leaving for task in marked) == max(must_end, min(leaving, len(running)))
    assert cluster_victims(asks, marked, nodes, own=1) == []


@given(st.lists(st.integers(1, 5), max_size=4), st.sets(st.integers(1, 4)))
def test_a_spawned_task_preempts_no_task_with_children(priorities: list[int], parents: set[int]) -> None:
    crowd = [(running(id, effective), False) for id, effective in enumerate(priorities, 1)]
    childless = [each for each in crowd if each[0].id not in parents]
    spawned, other = UrgentTask(0, is_spawned=True), UrgentTask(0)
    assert victims([spawned], crowd, parents=parents) == victims([other], childless)
    assert victims([other], crowd, parents=parents) == victims([other], crowd)


@given(st.integers(0, 3), st.sets(st.integers(1, 4)), st.booleans())
def test_a_spawned_task_preempts_no_task_with_children_on_any_node(
    busy: int, parents: set[int], is_spawned: bool
) -> None:
    tasks = [Runner(id, 5, 0, 1 + id % 2, False, id in parents) for id in range(1, busy + 1)]
    nodes = {1: Host(busy, ["d::t"]), 2: Host(busy, ["d::t"])}
    chosen = cluster_victims([Ask(9, 0, "d::t", counts_free=False, is_spawned=is_spawned)], tasks, nodes, 1)
    able = [task.id for task in tasks if not (is_spawned and task.has_children)]
    assert chosen == ([max(able)] if able else [])


@given(clusters())
def test_no_more_tasks_than_needed_are_preempted_and_none_if_no_slot_becomes_free(
    cluster: tuple[list[Ask], list[Runner], dict[int, Host]],
) -> None:
    asks, running, nodes = cluster
    for ask in (ask._replace(counts_free=False) for ask in asks):
        chosen = cluster_victims([ask], running, nodes, own=1)
        enough: list[int] = []
        for id, host in nodes.items():
            here = [task for task in running if task.node == id]
            staying = [task for task in here if not task.is_leaving]
            replaceable = [
                task
                for task in staying
                if task.effective > ask.effective and (ask.candidates is None or task.id in ask.candidates)
            ]
            needed = max(0, len(staying) - host.slots) + 1
            becomes_free = len(staying) < host.slots and len(staying) < len(here)
            if ask.type in host.types and (becomes_free or len(replaceable) >= needed):
                enough.append(0 if becomes_free else needed)
        assert len(chosen) == min(enough, default=0)
