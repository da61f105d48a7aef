"""Making way: running tasks that are asked to, and their return.

Where nodes dispatch together, the least urgent task of all nodes makes way. The node that sees a task which must not
wait asks the store; the store chooses by ``policy/preemption.py``, and the node that runs the chosen task finds the
mark.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskmill.model.cluster import Ask, Preemption
from taskmill.model.io_budget import IoBudget
from taskmill.model.outcome import StopReason
from taskmill.policy.preemption import PATIENCE_MS, Pressing, fits_after, victims
from taskmill.ports import Turn
from taskmill.runtime.courtesy import Courtesy
from taskmill.runtime.waiting_room import WaitingRoom
from taskmill.runtime.workshop import Workshop


def ease(courtesy: Courtesy, workshop: Workshop) -> None:
    """Ask those to make way who would not be started under the pressure there is."""
    if courtesy.is_easing:
        for id, attempt in workshop.attempts.items():
            if attempt.stop_reason is None and courtesy.makes_way(attempt.task.effective):
                workshop.stop(id, StopReason.EASE)


class _Asked:
    """What was asked of the other nodes for a task that must not wait."""

    def __init__(self, since: int) -> None:
        self.since = self.again_at = since


class Preempting:
    """Frees slots for tasks that may not wait."""

    def __init__(self, room: WaitingRoom, workshop: Workshop) -> None:
        self._room = room
        self._workshop = workshop
        self._asked: dict[int, _Asked] = {}
        """The tasks that press, with what was asked for them."""
        self.next_at: int | None = None
        """When to ask the other nodes again."""

    def make_way(self, turn: Turn, slots: int) -> None:
        """Ask the least urgent to make way for tasks that may not wait, where no slot is free for these."""
        room, workshop, self.next_at = self._room, self._workshop, None
        if workshop.slots_taken + len(turn.claims) < slots:
            return
        room.picker.settle(slots, turn.now)
        pressing = room.picker.pressing(turn.now, slots)
        if room.in_cluster:
            self._ask(pressing, turn)
        elif pressing:
            running = [(attempt.task, attempt.stop_reason is not None) for attempt in workshop.attempts.values()]
            for victim in victims(pressing, running, room.picker.courtesy.capacity, workshop.load.io):
                workshop.stop(victim, StopReason.PREEMPT)

    def _ask(self, pressing: Sequence[Pressing], turn: Turn) -> None:
        """Have the store choose among the tasks of all nodes: once for each task, and again if that has not helped."""
        now, known = turn.now, self._asked
        self._asked = {each.id: known.get(each.id) or _Asked(now) for each in pressing}
        if not pressing:
            return
        if any(asked.again_at <= now for asked in self._asked.values()):
            attempts = self._workshop.attempts
            leaving = [id for id, attempt in attempts.items() if attempt.stop_reason is not None]
            aging = self._room.picker.rules.declared.aging
            turn.preempt = Preemption(self._asks(pressing, now), leaving, aging)
            for asked in self._asked.values():
                asked.again_at = now + PATIENCE_MS
        self.next_at = min(asked.again_at for asked in self._asked.values())

    def _asks(self, pressing: Sequence[Pressing], now: int) -> list[Ask]:
        asks: list[Ask] = []
        has_budget = False
        for each in pressing:
            if each.budget is None or not has_budget:
                # Budgets add up: of tasks that have one, the next is asked for when this one has started.
                has_budget = has_budget or each.budget is not None
                counts_free = now < self._asked[each.id].since + PATIENCE_MS
                asks.append(Ask(each.id, each.effective, each.type, counts_free, self._candidates(each.budget)))
        return asks

    def _candidates(self, budget: IoBudget | None) -> list[int] | None:
        """Return the tasks here that leave room for a budget of IO; None if there is no budget."""
        if budget is None:
            return None
        capacity, load = self._room.picker.courtesy.capacity, self._workshop.load.io
        running = [attempt.task for attempt in self._workshop.attempts.values()]
        return [task.id for task in running if fits_after(budget, task.budget, capacity, load)]

    def may_return(self, slots: int, now: int) -> bool:
        """Whether there are tasks that made way, and nobody is left for whom they did.

        One that a cap, a rate or a pause keeps from starting is not such a one: the slots would be idle meanwhile. When
        it may start it preempts again, so that each start of such a task stops one other at most. Nor is one that runs
        on another node, while a slot is free here.
        """
        room, workshop = self._room, self._workshop
        line = room.picker.rules.declared.preempt_at
        if not room.has_preempted or any(attempt.task.effective <= line for attempt in workshop.attempts.values()):
            return False
        elsewhere = room.others.most_urgent
        if elsewhere is not None and elsewhere <= line and workshop.slots_taken >= slots:
            return False
        room.picker.settle(slots, now)
        return not room.picker.pressing(now, slots)
