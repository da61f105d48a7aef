"""Who makes way: which running tasks are asked to, for waiting ones that must not wait.

Laws: nobody makes way for a task that is not more urgent than itself; of those who could, the least urgent does, and of
equals the one that has done the least; a slot that is about to be free is not freed twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskmill.model.stages import Claimed


def victims(pressing: Sequence[int], running: Sequence[tuple[Claimed, bool]]) -> list[int]:
    """Who is asked to make way for tasks of these effective priorities, the most urgent first.

    ``running`` says of each running task whether it was asked to stop already.
    """
    stopping = sum(asked for _, asked in running)
    at_work = sorted(
        ((task.effective, task.started_at, task.id) for task, asked in running if not asked and task.stop is None),
        reverse=True,
    )
    chosen: list[int] = []
    for urgency, (effective, _, id) in zip(pressing[stopping:], at_work, strict=False):
        if effective <= urgency:
            break
        chosen.append(id)
    return chosen
