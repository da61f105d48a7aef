"""Making way: running tasks that are asked to, and their return."""

from __future__ import annotations

from taskmill.model.outcome import StopReason
from taskmill.policy.preemption import victims
from taskmill.ports import Turn
from taskmill.runtime.courtesy import Courtesy
from taskmill.runtime.waiting_room import WaitingRoom
from taskmill.runtime.workshop import Workshop


def make_way(room: WaitingRoom, workshop: Workshop, turn: Turn, slots: int) -> None:
    """Ask the least urgent to make way for tasks that may not wait, where no slot is free for these."""
    if workshop.slots_taken + len(turn.claims) < slots:
        return
    room.picker.settle(slots, turn.now)
    if pressing := room.picker.pressing(turn.now, slots):
        running = [(attempt.task, attempt.stop_reason is not None) for attempt in workshop.attempts.values()]
        for victim in victims(pressing, running, room.picker.courtesy.capacity, workshop.load.io):
            workshop.stop(victim, StopReason.PREEMPT)


def ease(courtesy: Courtesy, workshop: Workshop) -> None:
    """Ask those to make way who would not be started under the pressure there is."""
    if courtesy.is_easing:
        for id, attempt in workshop.attempts.items():
            if attempt.stop_reason is None and courtesy.makes_way(attempt.task.effective):
                workshop.stop(id, StopReason.EASE)


def may_return(room: WaitingRoom, workshop: Workshop, slots: int, now: int) -> bool:
    """Whether there are tasks that made way, and nobody is left for whom they did.

    One that a cap, a rate or a pause keeps from starting is not such a one: the slots would be idle meanwhile. When it
    may start it preempts again, so that each start of such a task stops one other at most.
    """
    line = room.picker.rules.declared.preempt_at
    if not room.has_preempted or any(attempt.task.effective <= line for attempt in workshop.attempts.values()):
        return False
    room.picker.settle(slots, now)
    return not room.picker.pressing(now, slots)
