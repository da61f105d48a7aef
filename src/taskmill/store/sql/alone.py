"""Which turns must be alone, as their plans tell.

A store with many writers takes the exclusive lock for such a turn before it begins. A need that only the rows show (a
task was stopped meanwhile, a firing of a cron task starts) is found later, and then the transaction begins anew
(docs/decisions/0020).
"""

from __future__ import annotations

from taskmill.model.attempt import End
from taskmill.model.turn import Judged, Turn


def just_ends(judged: Judged) -> bool:
    """True if the attempt is over, the task ends with it, and no other task waits for that."""
    return isinstance(judged.verdict, End) and not judged.stopped and not judged.task.is_tied


def must_be_alone(turn: Turn) -> bool:
    """True if the turn depends on rows of other tasks, or changes them."""
    starts, upkeep = turn.starts, turn.upkeep
    return (
        starts.admission is not None
        or starts.preempt is not None
        or starts.owes_paused_time
        or upkeep.expire
        or upkeep.resume_preempted
        or upkeep.resume_eased
        or not all(map(just_ends, turn.judged))
    )
