"""The next delayed tasks, and the places that they take in the queue.

When a delayed task comes due, the next turn puts it into the queue. Its place is known in advance, so that turn may
also start it. Until then, prefetched tasks that come before it begin (docs/decisions/0042).
"""

from __future__ import annotations

from collections.abc import Iterable

from taskmill.dispatch.picker import Picker, starts_before
from taskmill.model.task import Claimed, DueTask, Waiting
from taskmill.model.turn import DueFront

MOST = 40
"""How many delayed tasks are kept in memory."""


class DueTasks:
    """The next delayed tasks. All that are due before a certain instant are known."""

    def __init__(self, picker: Picker) -> None:
        self._picker = picker
        self.next_at: int | None = None
        """When the next delayed task is due, or may be due."""
        self._tasks: dict[int, DueTask] = {}
        """By id."""
        self._until: int | None = None
        """Unknown tasks may be due from this instant on; None if there are none."""

    def note(self, task: DueTask) -> None:
        """Note a delayed task."""
        if self._until is not None and task.at >= self._until:
            return
        known = self._tasks.get(task.place.id)
        if known is None or known.at != task.at:
            # Otherwise keep the known one: it was noted with the verdict on its attempt, and what was read is older.
            self._tasks[task.place.id] = task
        if len(self._tasks) > MOST:
            tasks = sorted(self._tasks.values(), key=lambda task: task.at)
            self._tasks = {task.place.id: task for task in tasks[: MOST // 2]}
            self._until = tasks[MOST // 2].at
        self._find_next()

    def note_retry(self, at: int, task: Claimed) -> None:
        """Note a task that is delayed after an attempt.

        If other tasks depend on it, they may have made it more urgent meanwhile: its place is uncertain.
        """
        if not task.is_tied:
            self.note(DueTask(at, task.lane, task.place))
        else:
            self._until = at if self._until is None else min(self._until, at)
            self._find_next()

    def forget(self, ids: Iterable[int]) -> None:
        """Forget tasks that no longer wait to be due."""
        for id in ids:
            self._tasks.pop(id, None)

    def read(self, found: DueFront) -> None:
        """Replace what is known by what the store has found."""
        self._tasks = {task.place.id: task for task in found.tasks}
        self._until = found.until
        self._find_next()

    def _find_next(self) -> None:
        instants = [task.at for task in self._tasks.values()]
        if self._until is not None:
            instants.append(self._until)
        self.next_at = min(instants, default=None)

    def is_past(self, now: int) -> bool:
        """True if a task is due, or may be."""
        return self.next_at is not None and self.next_at <= now

    def are_known(self, now: int) -> bool:
        """True if the places of all tasks that are due are known. Paused time that is still owed moves places."""
        return (self._until is None or now < self._until) and not self._picker.rules.controls.ended_pauses

    def take(self, now: int) -> list[Waiting]:
        """Remove the known tasks that are due, and return them with their ranks."""
        due = self._past(now)
        for task in due:
            del self._tasks[task.place.id]
        self._find_next()
        return [self._picker.ranked(task.lane, task.place, now) for task in due]

    def come_before(self, other: Claimed, now: int) -> bool:
        """True if a task is due that starts before a prefetched one, or may start before it."""
        if not self.is_past(now):
            return False
        if not self.are_known(now):
            return True
        return any(starts_before(self._picker.ranked(task.lane, task.place, now), other) for task in self._past(now))

    def _past(self, now: int) -> list[DueTask]:
        return [task for task in self._tasks.values() if task.at <= now]
