"""Reads a task or a whole queue again and again, at a bounded cost: the data of the live views.

A read that takes longer with more tasks is repeated less often where there are many. This matters most for
``taskmill run``, whose scheduler is also the one that does the work.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from taskmill import Ending, Explanation, HistoryRecord, Scheduler, Snapshot, Status, TaskNotFound, TaskRecord
from taskmill.cli import text
from taskmill.cli.output import REFUSED, Refusal

TASK_INTERVAL = 0.5
TASK_SHARE = 0.1
"""The largest part of the time to spend on the reasons and the children of a task."""
MOST_CHILDREN = 200
"""At most so many active children are read; all of them are counted."""

QUEUE_INTERVAL = 1.0
QUEUE_SHARE = 0.02
"""The largest part of the time to spend on snapshots of a queue."""
SHORT_QUEUE = 5_000
"""In longer queues no reasons are looked up."""
SAMPLE = 50
"""The number of longest-waiting tasks among which the least urgent one is looked for."""
MOST_RUNNING = 200
"""At most so many running tasks are read; all of them are counted."""


class Pace:
    """Allow a read every ``interval`` seconds, and less often if reads would take more than ``share`` of the time."""

    def __init__(self, interval: float, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._share = share
        self._clock = clock
        self._next = clock()

    @property
    def is_due(self) -> bool:
        """True if the next read may begin."""
        return self._clock() >= self._next

    @contextlib.contextmanager
    def read(self) -> Generator[None]:
        """Measure the read in the ``with`` block, and set when the next one is due."""
        began = self._clock()
        try:
            yield
        finally:
            ended = self._clock()
            self._next = max(began + self._interval, ended + (ended - began) * (1 / self._share - 1))


# One task


@dataclass(frozen=True)
class Children:
    """The children of a task: ``counts`` by status and ending; ``active``, the running ones, then the waiting ones."""

    counts: Mapping[str, int]
    active: Sequence[TaskRecord]

    @property
    def sentence(self) -> str:
        return text.counted(self.counts)


@dataclass(frozen=True)
class TaskState:
    """A task at one moment. ``why`` is set unless it runs or has ended, ``children`` once it has some."""

    record: TaskRecord | HistoryRecord
    why: Explanation | None
    children: Children | None

    @property
    def ended(self) -> HistoryRecord | None:
        return self.record if isinstance(self.record, HistoryRecord) else None

    @property
    def reason(self) -> str:
        """Return a sentence that says why the task waits; empty if it waits for nothing but its children."""
        if self.why is None:
            return ""
        reasons = {hold.reason for hold in self.why.holds}
        return "" if reasons and reasons <= {"children"} else str(self.why)


class TaskPoller:
    """Reads one task again and again."""

    def __init__(self, scheduler: Scheduler, id: int) -> None:
        self._scheduler = scheduler
        self._id = id
        self._last: TaskState | None = None
        self._reasons = Pace(TASK_INTERVAL, TASK_SHARE)
        self._children = Pace(TASK_INTERVAL, TASK_SHARE)

    async def read(self) -> TaskState:
        """Return the present state; raise ``Refusal`` if the task has left history since the first read."""
        try:
            record = await self._scheduler.get(self._id)
            why = await self._why(record)
        except TaskNotFound:
            if self._last is None:
                raise
            raise Refusal(f"task {self._id} has ended and is no longer in history", REFUSED) from None
        if why is not None and why.status != state_of(record):
            # The task changed between the two reads; read the record again.
            record, why = await self._scheduler.get(self._id), None
        self._last = TaskState(record, why, await self._read_children(record))
        return self._last

    async def _why(self, record: TaskRecord | HistoryRecord) -> Explanation | None:
        if isinstance(record, HistoryRecord) or record.status is Status.RUNNING:
            return None
        last = None if self._last is None else self._last.why
        if last is not None and last.status is record.status and not self._reasons.is_due:
            return last
        with self._reasons.read():
            return await self._scheduler.explain(self._id)

    async def _read_children(self, record: TaskRecord | HistoryRecord) -> Children | None:
        has_ended = isinstance(record, HistoryRecord)
        if not record.attempt:
            return None
        if self._last is not None and not has_ended and not self._children.is_due:
            return self._last.children
        with self._children.read():
            counts: dict[str, int] = {}
            for kind in (*Ending,) if has_ended else (*Status, *Ending):
                if count := await self._scheduler.count(parent=self._id, status=kind):
                    counts[str(kind)] = count
            if not counts:
                return None
            active = [
                child
                for status in (Status.RUNNING, Status.WAITING)
                if counts.get(status)
                for child in await self._scheduler.tasks(parent=self._id, status=status, limit=MOST_CHILDREN)
            ]
            return Children(counts, active)


def state_of(record: TaskRecord | HistoryRecord) -> Status | Ending:
    return record.ending if isinstance(record, HistoryRecord) else record.status


# A queue


@dataclass(frozen=True)
class QueueState:
    """The queue of a scheduler of this process: ``running`` is newer than ``snapshot``, ``why`` explains one task."""

    snapshot: Snapshot
    why: Explanation | None
    running: Sequence[TaskRecord]

    def lines(self) -> Iterator[tuple[str, str]]:
        """Return names and sentences about pauses, pressure and waiting, if there is something to say."""
        if paused := text.paused(self.snapshot):
            yield "paused", paused
        if self.snapshot.pressure:
            yield "pressure", text.pressure(self.snapshot.pressure)
        if self.why is not None and self.why.holds:
            held = "; ".join(hold.detail for hold in self.why.holds)
            yield "waiting", f"task {self.why.task_id}: {held}"

    @property
    def running_count(self) -> int:
        read = len(self.running)
        return read if read < MOST_RUNNING else max(len(self.snapshot.running), read)

    @property
    def waiting_counts(self) -> str:
        """Return the number of active tasks by status, without the running ones."""
        others = {str(kind): self.snapshot.counts.get(kind, 0) for kind in Status if kind is not Status.RUNNING}
        return text.counted(others) if any(others.values()) else "nothing waits"


class QueuePoller:
    """Reads the queue of a scheduler again and again."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._pace = Pace(QUEUE_INTERVAL, QUEUE_SHARE)
        self._last: tuple[Snapshot, Explanation | None] | None = None

    async def read(self) -> QueueState:
        """Return the running tasks of now, with the newest snapshot that is affordable."""
        running = await self._scheduler.tasks(status=Status.RUNNING, limit=MOST_RUNNING)
        if self._last is None or self._pace.is_due:
            with self._pace.read():
                snapshot = await self._scheduler.snapshot()
                self._last = snapshot, await self._why(snapshot)
        return QueueState(*self._last, running)

    async def _why(self, snapshot: Snapshot) -> Explanation | None:
        """Explain the task that waits longest; if pressure holds only less urgent ones, the least urgent one."""
        if not 0 < snapshot.counts.get(Status.PENDING, 0) <= SHORT_QUEUE:
            return None
        waiting = await self._scheduler.tasks(status=Status.PENDING, limit=SAMPLE)
        if not waiting:
            return None
        oldest = await self._scheduler.explain(waiting[0].id)
        least = max(waiting, key=lambda record: record.effective_priority)
        if snapshot.pressure and least.id != oldest.task_id and not _is_held_by_pressure(oldest):
            other = await self._scheduler.explain(least.id)
            return other if _is_held_by_pressure(other) else oldest
        return oldest


def _is_held_by_pressure(why: Explanation) -> bool:
    return any(hold.reason == "pressure" for hold in why.holds)
