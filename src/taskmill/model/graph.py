"""How tasks hang together, for display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from taskmill.model.records import HistoryRecord, TaskRecord


class Dependency(NamedTuple):
    """``task_id`` waits, or waited, for ``on_id``; ``open`` while it still does."""

    task_id: int
    on_id: int
    open: bool


class TaskGraph(msgspec.Struct, frozen=True, kw_only=True):
    """Everything tied to one task, directly or through others: parents, children, dependencies and dependents.

    ``tasks`` maps ids to records, active or ended; a task that was pruned from history is missing there.
    """

    tasks: Mapping[int, TaskRecord | HistoryRecord]
    dependencies: Sequence[Dependency]

    def children(self, id: int) -> list[int]:
        """The children of a task, in the order of their ids."""
        return [task.id for task in self.tasks.values() if task.parent_id == id]
