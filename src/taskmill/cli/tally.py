"""Counting endings by listening to events."""

from __future__ import annotations

from collections import Counter

from taskmill.events import Event, TaskCancelled, TaskCompleted, TaskDeadLettered, TaskExpired, TaskFailed


class Tally:
    """How many tasks have been heard to end, by ending."""

    def __init__(self) -> None:
        self.endings: Counter[str] = Counter()
        self._failed_last: int | None = None

    def hear(self, event: Event) -> None:
        match event:
            case TaskCompleted():
                self.endings["completed"] += 1
            case TaskFailed(will_retry=False):
                self.endings["failed"] += 1
                self._failed_last = event.task_id
            case TaskDeadLettered():
                # A last failure is announced as such first; a quarantined task is not.
                if event.task_id == self._failed_last:
                    self.endings["failed"] -= 1
                self.endings["dead_letter"] += 1
            case TaskCancelled():
                self.endings["cancelled"] += 1
            case TaskExpired():
                self.endings["expired"] += 1
            case _:
                pass
