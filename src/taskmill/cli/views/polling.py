"""Reads a task or a whole queue again and again, at a bounded cost: the data of the live views.

A read that takes longer with more tasks is repeated less often where there are many. This matters most for
``taskmill run``, whose scheduler is also the one that does the work.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taskmill import Ending, Explanation, HistoryRecord, Snapshot, Status, TaskNotFound, TaskRecord
from taskmill.cli import text
from taskmill.cli.orphans import orphans, sentence
from taskmill.cli.output import REFUSED, Refusal

if TYPE_CHECKING:
    from taskmill import Scheduler
    from taskmill.reading import Reader

TASK_INTERVAL = 0.5
TASK_SHARE = 0.1
"""The largest part of the time to spend on the reasons and the children of a task."""
MOST_CHILDREN = 200
"""The most active children that are read; all of them are counted."""

QUEUE_INTERVAL = 1.0
QUEUE_SHARE = 0.02
"""The largest part of the time to spend on snapshots of a queue."""
SHORT_QUEUE = 5_000
"""In longer queues no reasons are looked up."""
SAMPLE = 50
"""The number of longest-waiting tasks among which the least urgent one is looked for."""
MOST_RUNNING = 200
"""The most running tasks that are read; all of them are counted."""


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

    def __init__(self, queue: Scheduler | Reader, id: int) -> None:
        self._queue = queue
        self._id = id
        self._last: TaskState | None = None
        self._reasons = Pace(TASK_INTERVAL, TASK_SHARE)
        self._children = Pace(TASK_INTERVAL, TASK_SHARE)

    async def read(self) -> TaskState:
        """Return the present state; raise ``Refusal`` if the task has left history since the first read."""
        try:
            record = await self._queue.get(self._id)
            why = await self._why(record)
        except TaskNotFound:
            if self._last is None:
                raise
            raise Refusal(f"task {self._id} has ended and is no longer in history", REFUSED) from None
        if why is not None and why.status != state_of(record):
            # The task changed between the two reads; read the record again.
            record, why = await self._queue.get(self._id), None
        self._last = TaskState(record, why, await self._read_children(record))
        return self._last

    async def _why(self, record: TaskRecord | HistoryRecord) -> Explanation | None:
        if isinstance(record, HistoryRecord) or record.status is Status.RUNNING:
            return None
        last = None if self._last is None else self._last.why
        if last is not None and last.status is record.status and not self._reasons.is_due:
            return last
        with self._reasons.read():
            return await self._queue.explain(self._id)

    async def _read_children(self, record: TaskRecord | HistoryRecord) -> Children | None:
        has_ended = isinstance(record, HistoryRecord)
        if not record.attempt:
            return None
        if self._last is not None and not has_ended and not self._children.is_due:
            return self._last.children
        with self._children.read():
            counts: dict[str, int] = {}
            for kind in (*Ending,) if has_ended else (*Status, *Ending):
                if count := await self._queue.count(parent=self._id, status=kind):
                    counts[str(kind)] = count
            if not counts:
                return None
            active = [
                child
                for status in (Status.RUNNING, Status.WAITING)
                if counts.get(status)
                for child in await self._queue.tasks(parent=self._id, status=status, limit=MOST_CHILDREN)
            ]
            return Children(counts, active)


def state_of(record: TaskRecord | HistoryRecord) -> Status | Ending:
    return record.ending if isinstance(record, HistoryRecord) else record.status


# A queue


@dataclass(frozen=True)
class QueueState:
    """A queue: ``running`` is newer than ``snapshot``, ``why`` explains one waiting task, ``endings`` are the last."""

    snapshot: Snapshot
    why: Explanation | None
    running: Sequence[TaskRecord]
    endings: Sequence[HistoryRecord] = ()

    def lines(self) -> Iterator[tuple[str, str]]:
        """Return names and sentences about pauses, pressure and waiting, if there is something to say."""
        if paused := text.paused(self.snapshot):
            yield "paused", paused
        if self.snapshot.pressure:
            yield "pressure", text.pressure(self.snapshot.pressure)
        if self.why is not None and self.why.holds:
            held = "; ".join(hold.detail for hold in self.why.holds)
            yield "waiting", f"task {self.why.task_id}: {held}"

    def warnings(self) -> Iterator[str]:
        """Return what an operator should know: the lasting warnings, pressure, and why a task waits."""
        yield from self.lasting_warnings()
        for name, said in self.lines():
            if name != "paused":
                yield f"{name}: {said}"

    def lasting_warnings(self) -> Iterator[str]:
        """Return warnings that do not change with every look: no dispatcher, a dead process, no handler, pauses."""
        if left := orphans(self.snapshot):
            yield sentence(left)
        elif not self.snapshot.has_dispatcher:
            yield "nothing dispatches: no process runs these tasks now"
        if self.snapshot.unhandled:
            yield f"no handler: {', '.join(self.snapshot.unhandled)}"
        if paused := text.paused(self.snapshot):
            yield f"paused: {paused}"

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
    """Reads a queue again and again."""

    def __init__(self, queue: Scheduler | Reader, *, endings: int = 0) -> None:
        self._queue = queue
        self._most_endings = endings
        self._endings: Sequence[HistoryRecord] = ()
        self._pace = Pace(QUEUE_INTERVAL, QUEUE_SHARE)
        self._last: tuple[Snapshot, Explanation | None] | None = None

    async def read(self) -> QueueState:
        """Return the running tasks of now, with the newest snapshot that is affordable."""
        running = await self._queue.tasks(status=Status.RUNNING, limit=MOST_RUNNING)
        if self._last is None or self._pace.is_due:
            with self._pace.read():
                snapshot = await self._queue.snapshot()
                self._last = snapshot, await self._why(snapshot)
                if self._most_endings:
                    self._endings = await self._queue.history(limit=self._most_endings)
        snapshot, why = self._last
        if why is not None and not await self._still_waits(why, snapshot, running):
            self._last = snapshot, None
        return QueueState(*self._last, running, self._endings)

    async def _still_waits(self, why: Explanation, snapshot: Snapshot, running: Sequence[TaskRecord]) -> bool:
        """True if a task waits as it did when it was explained, and no slot has become free for it since."""
        if len(running) < min(len(snapshot.running), MOST_RUNNING):
            return False
        try:
            record = await self._queue.get(why.task_id)
        except TaskNotFound:
            return False
        groups = [sum(one.group == record.group for one in every) for every in (snapshot.running, running)]
        return state_of(record) == why.status and (len(running) == MOST_RUNNING or groups[0] <= groups[1])

    async def _why(self, snapshot: Snapshot) -> Explanation | None:
        """Explain the task that waits longest; if pressure holds only less urgent ones, the least urgent one."""
        if not 0 < snapshot.counts.get(Status.PENDING, 0) <= SHORT_QUEUE:
            return None
        waiting = await self._queue.tasks(status=Status.PENDING, limit=SAMPLE)
        if not waiting:
            return None
        oldest = await self._queue.explain(waiting[0].id)
        least = max(waiting, key=lambda record: record.effective_priority)
        if snapshot.pressure and least.id != oldest.task_id and not _is_held_by_pressure(oldest):
            other = await self._queue.explain(least.id)
            return other if _is_held_by_pressure(other) else oldest
        return oldest


def _is_held_by_pressure(why: Explanation) -> bool:
    return any(hold.reason == "pressure" for hold in why.holds)
