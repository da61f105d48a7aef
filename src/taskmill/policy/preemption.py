"""Who makes way: which running tasks are asked to, for waiting ones that must not wait.

Laws: nobody makes way for a task that is not more urgent than itself, nor for one whose IO would not fit all the same;
of those who could, the least urgent does, and of equals the one that has done the least; a slot that is about to be
free is not freed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from taskmill.model.io_budget import IoBudget
from taskmill.model.readings import UNKNOWN_CAPACITY, Capacity
from taskmill.model.stages import Claimed
from taskmill.policy.io_gate import IoGate, IoLoad

_NO_LOAD = IoLoad()


class Pressing(NamedTuple):
    """A waiting task that must not wait."""

    effective: int
    budget: IoBudget | None = None


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
        return all(gate.admit(each) is None for each in (*coming, budget))

    for effective, budget in pressing:
        if about_to_be_free:
            if not fits(budget):
                continue
            about_to_be_free -= 1
        else:
            victim = next((task for task in at_work if task.effective > effective and fits(budget, task.budget)), None)
            if victim is None:
                continue
            at_work.remove(victim)
            chosen.append(victim.id)
            going.append(victim.budget)
        coming.append(budget)
    return chosen
