"""Who makes way: which running tasks are asked to, for waiting ones that must not wait.

Laws: nobody makes way for a task that is not more urgent than itself, nor for one whose IO would not fit all the same;
of those who could, the least urgent does, and of equals the one that has done the least; a slot that is about to be
free is not freed twice; where nodes dispatch together, the least urgent task of all nodes makes way, one for each task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from taskmill.model.cluster import Ask, Host, Runner
from taskmill.model.io_budget import IoBudget
from taskmill.model.readings import UNKNOWN_CAPACITY, Capacity
from taskmill.model.stages import Claimed
from taskmill.policy.io_gate import IoGate, IoLoad

PATIENCE_MS = 2000
"""How long a node waits for a slot that is free elsewhere, or was asked for, to help a task before it asks again."""

_NO_LOAD = IoLoad()


class Pressing(NamedTuple):
    """A waiting task that must not wait."""

    effective: int
    budget: IoBudget | None = None
    id: int = 0
    type: str = ""


def fits_after(budget: IoBudget | None, victim: IoBudget | None, capacity: Capacity, load: IoLoad) -> bool:
    """True if a task with ``budget`` could start once a task with the budget ``victim`` has stopped."""
    return budget is None or IoGate(capacity, load.without([victim])).admit(budget) is None


def cluster_victims(
    asks: Sequence[Ask], running: Sequence[Runner], nodes: Mapping[int, Host], own: int | None
) -> list[int]:
    """Return which running tasks of all nodes are preempted for these waiting ones, the most urgent first.

    A slot helps a task only on a node that has its handler. ``own`` is the node that asks: it has no free slot,
    whatever its rows say, since handlers that will not stop keep theirs.
    """
    load, leaving = Counter(task.node for task in running), Counter(task.node for task in running if task.is_leaving)
    # Hooks need no slot: a node may run more than its slots, and then the first tasks that end free none.
    soon = {id: max(0, leaving[id] - max(0, load[id] - host.slots)) for id, host in nodes.items()}
    free = {id: 0 if id == own else max(0, host.slots - load[id]) for id, host in nodes.items()}
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
        victim = next((task for task in at_work if task.node in able and _may_replace(ask, task)), None)
        if victim is not None:
            at_work.remove(victim)
            chosen.append(victim.id)
    return chosen


def _take(slots: dict[int, int], able: Sequence[int]) -> bool:
    """Take a slot of one of these nodes; False if none has one."""
    node = next((id for id in able if slots[id]), None)
    if node is not None:
        slots[node] -= 1
    return node is not None


def _may_replace(ask: Ask, task: Runner) -> bool:
    return task.effective > ask.effective and (ask.candidates is None or task.id in ask.candidates)


def victims(
    pressing: Sequence[Pressing],
    running: Sequence[tuple[Claimed, bool]],
    capacity: Capacity = UNKNOWN_CAPACITY,
    load: IoLoad = _NO_LOAD,
) -> list[int]:
    """Who is asked to make way for these tasks, the most urgent first.

    ``running`` says of each running task whether it was asked to stop already, ``load`` what they all have in their
    budgets.
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

    def fits(budget: IoBudget | None, *victim: IoBudget | None) -> bool:
        if budget is None:
            return True
        gate = IoGate(capacity, load.without([*going, *victim]))
        for each in coming:
            gate.admit(each)
        return gate.admit(budget) is None

    for effective, budget, *_ in pressing:
        if about_to_be_free:
            about_to_be_free -= fits(budget)
        else:
            victim = next((task for task in at_work if task.effective > effective and fits(budget, task.budget)), None)
            if victim is not None:
                at_work.remove(victim)
                chosen.append(victim.id)
                going.append(victim.budget)
        # Room is kept for it even if it does not fit, and those after it stand behind it.
        coming.append(budget)
    return chosen
