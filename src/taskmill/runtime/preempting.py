"""Making way: running tasks that are asked to, and their return."""

from __future__ import annotations

from taskmill.model.outcome import StopReason
from taskmill.policy.preemption import victims
from taskmill.ports import Turn
from taskmill.runtime.waiting_room import WaitingRoom
from taskmill.runtime.workshop import Workshop


def make_way(room: WaitingRoom, workshop: Workshop, turn: Turn, slots: int) -> bool:
    """Ask the least urgent to make way for tasks that may not wait; says whether those who did may return."""
    picker = room.picker
    picker.settle(slots, turn.now)
    pressing = picker.pressing(turn.now, slots)
    running = workshop.attempts.values()
    if pressing and workshop.slots_taken + len(turn.claims) >= slots:
        for victim in victims(pressing, [(attempt.task, attempt.stop_reason is not None) for attempt in running]):
            workshop.stop(victim, StopReason.PREEMPT)
    return (
        room.preempted > 0
        and not pressing
        and not turn.claims
        and all(attempt.task.effective > picker.rules.declared.preempt_at for attempt in running)
    )
