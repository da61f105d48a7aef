"""The running tasks that a dead process has left: their process is gone, and nothing has recovered them yet."""

from __future__ import annotations

from collections.abc import Sequence

from taskmill import Snapshot, TaskRecord

PROCESS_IS_GONE = "process is gone"
_STARTS_AGAIN = "{} again when a scheduler dispatches"


def sentence(left: Sequence[TaskRecord]) -> str:
    """Return how many tasks were left and what happens to them."""
    if len(left) == 1:
        return f"1 task was left by a process that is gone (task {left[0].id}); {_STARTS_AGAIN.format('it starts')}"
    return f"{len(left):,} tasks were left by a process that is gone; {_STARTS_AGAIN.format('they start')}"


def orphans(snapshot: Snapshot) -> list[TaskRecord]:
    """Return the running tasks that no live node runs. A scheduler that dispatches returns them to the queue."""
    alive = {id for node in snapshot.nodes if node.is_alive for id in node.running}
    return [task for task in snapshot.running if task.id not in alive]
