"""Choose the running tasks to preempt for urgent waiting tasks.

Laws: a task is preempted only for a more urgent one, and only if the IO of that one then fits; the least urgent running
task goes first, and among equals the one that started last; a slot that is about to be free needs no second victim;
in a cluster the least urgent task of all nodes is preempted, one for each waiting task. A node may run more tasks than
it has slots, because their number was lowered. Then several have to end before a slot is free, so another node is
preferred, and none of them is preempted if they do not suffice.

A task that was spawned preempts no task that has children: its parent would start again, spawn it again, and be
preempted again, and two parents would never end if the children of each preempted the other.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from taskmill.model.cluster import Ask, Host, Runner
from taskmill.model.io_budget import IoBudget
from taskmill.model.machine import UNKNOWN_CAPACITY, Capacity
from taskmill.model.task import Claimed
from taskmill.policy.io_room import IoLoad, IoRoom

PATIENCE_MS = 2000
"""How long a free slot on another node, or an earlier preemption, has to serve a task before a node preempts again."""

_NO_LOAD = IoLoad()


class UrgentTask(NamedTuple):
    """A waiting task that is urgent enough to preempt others."""

    effective: int
    budget: IoBudget | None = None
    id: int = 0
    type: str = ""
    is_spawned: bool = False


def fits_after(budget: IoBudget | None, victim: IoBudget | None, capacity: Capacity, load: IoLoad) -> bool:
    """True if a task with ``budget`` could start once a task with the budget ``victim`` has stopped."""
    return budget is None or IoRoom(capacity, load.without([victim])).admit(budget) is None


def cluster_victims(
    asks: Sequence[Ask], running: Sequence[Runner], nodes: Mapping[int, Host], own: int | None
) -> list[int]:
    """Return the running tasks of all nodes to preempt for ``asks``, which are given the most urgent first.

    A slot helps a task only on a node that has its handler. ``own`` is the calling node. It has no free slot, whatever
    its rows say, because handlers that do not stop keep theirs.
    """
    load, leaving = Counter(task.node for task in running), Counter(task.node for task in running if task.is_leaving)
    # Hooks need no slot, so a node may run more tasks than it has slots. The first tasks to end then free no slot.
    soon = {id: max(0, leaving[id] - max(0, load[id] - host.slots)) for id, host in nodes.items()}
    free = {id: 0 if id == own else max(0, host.slots - load[id]) for id, host in nodes.items()}
    # The first of the other tasks to end free no slot either.
    excess = {id: max(0, load[id] - leaving[id] - host.slots) for id, host in nodes.items()}
    at_work = sorted(
        (task for task in running if not task.is_leaving),
        key=lambda task: (task.effective, task.started_at, task.id),
        reverse=True,
    )
    chosen: list[int] = []
    for ask in asks:
        able = [id for id, host in nodes.items() if ask.type in host.types]
        if _take(soon, able) or (ask.counts_free and _take(free, able)):
            continue
        replaceable = (task for task in at_work if task.node in able and _may_replace(ask, task))
        for victim in _fewest(replaceable, excess):
            at_work.remove(victim)
            chosen.append(victim.id)
            excess[victim.node] = 0
    return chosen


def _fewest(replaceable: Iterable[Runner], excess: Mapping[int, int]) -> list[Runner]:
    """Return the fewest of these tasks, on one node, that free a slot when they end; the earlier ones, if in doubt."""
    found: dict[int, list[Runner]] = {}
    fewest: list[Runner] = []
    for task in replaceable:
        together = found.setdefault(task.node, [])
        together.append(task)
        if len(together) == excess[task.node] + 1 and (not fewest or len(together) < len(fewest)):
            fewest = together.copy()
            if len(fewest) == 1:
                break
    return fewest


def _take(slots: dict[int, int], able: Sequence[int]) -> bool:
    """Take a slot of one of these nodes; return False if none is left."""
    node = next((id for id in able if slots[id]), None)
    if node is not None:
        slots[node] -= 1
    return node is not None


def _may_replace(ask: Ask, task: Runner) -> bool:
    is_candidate = ask.candidates is None or task.id in ask.candidates
    return task.effective > ask.effective and is_candidate and not (ask.is_spawned and task.has_children)


def victims(
    pressing: Sequence[UrgentTask],
    running: Sequence[tuple[Claimed, bool]],
    capacity: Capacity = UNKNOWN_CAPACITY,
    load: IoLoad = _NO_LOAD,
    parents: Collection[int] = (),
) -> list[int]:
    """Return the running tasks to preempt for ``pressing``, which is given the most urgent first.

    ``running`` pairs each running task with True if it was already asked to stop; ``parents`` are those with children.
    ``load`` sums their budgets.
    """
    going = [task.budget for task, asked in running if asked]
    about_to_be_free = len(going)
    at_work = sorted(
        (task for task, asked in running if not asked and task.stop is None),
        key=lambda task: (task.effective, task.started_at, task.id),
        reverse=True,
    )
    coming: list[IoBudget | None] = []
    chosen: list[int] = []

    def may_replace(urgent: UrgentTask, task: Claimed) -> bool:
        may_spawn_it_again = urgent.is_spawned and task.id in parents
        return task.effective > urgent.effective and not may_spawn_it_again and fits(urgent.budget, task.budget)

    def fits(budget: IoBudget | None, *victim: IoBudget | None) -> bool:
        if budget is None:
            return True
        room = IoRoom(capacity, load.without([*going, *victim]))
        for each in coming:
            room.admit(each)
        return room.admit(budget) is None

    for urgent in pressing:
        if about_to_be_free:
            about_to_be_free -= fits(urgent.budget)
        else:
            victim = next((task for task in at_work if may_replace(urgent, task)), None)
            if victim is not None:
                at_work.remove(victim)
                chosen.append(victim.id)
                going.append(victim.budget)
        # Reserve its room even if it does not fit: later tasks rank behind it.
        coming.append(urgent.budget)
    return chosen
