"""Making way: running tasks that are asked to, and their return.

Slots are those of a node, so a task that must not wait preempts on the node that would run it. Nodes all see it at
once; ``policy/preemption.py`` says which of them makes way.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskmill.model.outcome import StopReason
from taskmill.policy.preemption import Pressing, served_here, victims
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


class Preempting:
    """Frees slots for tasks that may not wait."""

    def __init__(self, room: WaitingRoom, workshop: Workshop) -> None:
        self._room = room
        self._workshop = workshop
        self._since: dict[int, int] = {}
        """When each of the tasks that press was seen first."""
        self._surveys = 0
        """How many surveys there had been when the last of them was."""
        self.next_at: int | None = None
        """When this node would make way for a task that is left to others so far."""

    def make_way(self, turn: Turn, slots: int) -> None:
        """Ask the least urgent to make way for tasks that may not wait, where no slot is free for these."""
        room, workshop, self.next_at = self._room, self._workshop, None
        if workshop.slots_taken + len(turn.claims) < slots:
            return
        room.picker.settle(slots, turn.now)
        pressing: Sequence[Pressing] = room.picker.pressing(turn.now, slots)
        if room.in_cluster:
            pressing = self._left_to_us(pressing, turn)
        if pressing:
            running = [(attempt.task, attempt.stop_reason is not None) for attempt in workshop.attempts.values()]
            for victim in victims(pressing, running, room.picker.courtesy.capacity, workshop.load.io):
                workshop.stop(victim, StopReason.PREEMPT)

    def _left_to_us(self, pressing: Sequence[Pressing], turn: Turn) -> Sequence[Pressing]:
        room, known, now = self._room, self._since, turn.now
        self._since = {each.id: known.get(each.id, now) for each in pressing}
        if not self._since.keys() <= known.keys():
            # Somebody else may have a free slot by now, perhaps one of whom we have not heard yet.
            self._surveys, turn.survey = room.surveys, True
        if not pressing or room.surveys == self._surveys:
            return ()
        elsewhere = self._workshop.load.elsewhere
        free = elsewhere.slots - elsewhere.running
        ours, self.next_at = served_here(pressing, self._since, room.others, free, now)
        return ours

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
