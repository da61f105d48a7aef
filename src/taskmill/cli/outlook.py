"""What runs and what waits in a scheduler of this process, and why: what the live view of ``run`` shows.

The scheduler that is looked at is also the one that works, so looking must not cost it anything: what takes longer with
more tasks is done seldom where there are many, and reasons are asked for only where the queue is short.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from taskmill import Explanation, Scheduler, Snapshot, Status, TaskRecord
from taskmill.cli import words
from taskmill.cli.pace import Pace

LOOK_INTERVAL = 1.0
DEAR_LOOKS = 0.02
"""The part of the time in which the whole may be looked at."""
SHORT_QUEUE = 5_000
"""Reasons are asked for in queues of up to so many."""
SAMPLE = 50
"""Of the tasks that wait longest."""
MOST_RUNNING = 200
"""Running tasks that are read; more are only counted."""


@dataclass(frozen=True)
class Outlook:
    """``why`` explains one of the tasks that wait."""

    picture: Snapshot
    why: Explanation | None

    def lines(self) -> Iterator[tuple[str, str]]:
        """Names and sentences, one to a line; what there is nothing to say about is left out."""
        if paused := words.paused(self.picture):
            yield "paused", paused
        if self.picture.pressure:
            yield "pressure", words.pressure(self.picture.pressure)
        if self.why is not None and self.why.holds:
            held = "; ".join(hold.detail for hold in self.why.holds)
            yield "waiting", f"task {self.why.task_id}: {held}"

    def at_work(self, running: Sequence[TaskRecord]) -> int:
        """How many run; those that were read are newer than the picture, if they are all."""
        return len(running) if len(running) < MOST_RUNNING else max(len(self.picture.running), len(running))

    @property
    def counts(self) -> str:
        """What is active beside what runs."""
        others = {str(kind): self.picture.counts.get(kind, 0) for kind in Status if kind is not Status.RUNNING}
        return words.counted(others) if any(others.values()) else "nothing waits"


class Lookout:
    """Looks at a scheduler again and again."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._pace = Pace(LOOK_INTERVAL, DEAR_LOOKS)
        self._last: Outlook | None = None

    async def running(self) -> Sequence[TaskRecord]:
        return await self._scheduler.tasks(status=Status.RUNNING, limit=MOST_RUNNING)

    async def outlook(self) -> Outlook:
        if self._last is None or self._pace.is_due:
            with self._pace.look():
                picture = await self._scheduler.snapshot()
                self._last = Outlook(picture, await self._why(picture))
        return self._last

    async def _why(self, picture: Snapshot) -> Explanation | None:
        """Of the task that waits longest; of the least urgent one if it is the pressure that holds it."""
        if not 0 < picture.counts.get(Status.PENDING, 0) <= SHORT_QUEUE:
            return None
        waiting = await self._scheduler.tasks(status=Status.PENDING, limit=SAMPLE)
        if not waiting:
            return None
        oldest = await self._scheduler.explain(waiting[0].id)
        least = max(waiting, key=lambda record: record.effective_priority)
        if picture.pressure and least.id != oldest.task_id and not _is_pressed(oldest):
            other = await self._scheduler.explain(least.id)
            return other if _is_pressed(other) else oldest
        return oldest


def _is_pressed(why: Explanation) -> bool:
    return any(hold.reason == "pressure" for hold in why.holds)
