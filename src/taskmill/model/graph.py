"""The graph of connected tasks, for display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from taskmill.model.records import HistoryRecord, TaskRecord


class Dependency(NamedTuple):
    """``task_id`` depends on ``on_id``; ``open`` is true while it still waits for it."""

    task_id: int
    on_id: int
    open: bool


class TaskGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks connected to one task, directly or not: parents, children, dependencies and dependents.

    ``tasks`` maps ids to records, active or ended. Tasks pruned from history are missing.
    """

    tasks: Mapping[int, TaskRecord | HistoryRecord]
    dependencies: Sequence[Dependency]

    def children(self, id: int) -> list[int]:
        """Return the children of a task, in the order of ``tasks``."""
        return [task.id for task in self.tasks.values() if task.parent_id == id]
