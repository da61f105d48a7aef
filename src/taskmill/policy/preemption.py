"""Who makes way: which running tasks are asked to, for waiting ones that must not wait.

Laws: nobody makes way for a task that is not more urgent than itself, nor for one whose IO would not fit all the same;
of those who could, the least urgent does, and of equals the one that has done the least; a slot that is about to be
free is not freed twice; where nodes dispatch together, one of them makes way for each task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from taskmill.model.cluster import Others
from taskmill.model.io_budget import IoBudget
from taskmill.model.readings import UNKNOWN_CAPACITY, Capacity
from taskmill.model.stages import Claimed
from taskmill.policy.io_gate import IoGate, IoLoad

PATIENCE_MS = 2000
"""How long a node waits for another to make way, or to start a task in a free slot, before it makes way itself."""

_NO_LOAD = IoLoad()


class Pressing(NamedTuple):
    """A waiting task that must not wait."""

    effective: int
    budget: IoBudget | None = None
    id: int = 0


def served_here(
    pressing: Sequence[Pressing], since: Mapping[int, int], others: Others, free: int, now: int
) -> tuple[list[Pressing], int | None]:
    """For which of these tasks this node makes way by now, and when it would for another.

    ``free`` slots elsewhere take the first of them. For each of the others the nodes stand in a row, which begins
    with another node for each task: so one node makes way for it, and the next one if that has not helped for a while.
    ``since`` tells when each was seen first.
    """
    if others.own not in others.nodes:
        return list(pressing), None
    here, count = others.nodes.index(others.own), len(others.nodes)
    moments = [
        since[each.id] + ((here - each.id) % count + (number < free)) * PATIENCE_MS
        for number, each in enumerate(pressing)
    ]
    ours = [each for each, at in zip(pressing, moments, strict=True) if at <= now]
    return ours, min((at for at in moments if at > now), default=None)


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

    for effective, budget, _ in pressing:
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
