"""One task as it is at a moment, with why it waits and what its children do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskmill import Ending, Explanation, HistoryRecord, Scheduler, Status, TaskNotFound, TaskRecord
from taskmill.cli import words
from taskmill.cli.pace import Pace
from taskmill.cli.refusal import REFUSED, Refusal

LOOK_INTERVAL = 0.5
DEAR_LOOKS = 0.1
"""The part of the time in which reasons and children may be looked up, where there are many."""
MOST_CHILDREN = 200
"""Children under way that are read; more are only counted."""


@dataclass(frozen=True)
class Family:
    """``counts`` has the children by status and ending; ``under_way`` those that run, then those with own children."""

    counts: Mapping[str, int]
    under_way: Sequence[TaskRecord]

    @property
    def sentence(self) -> str:
        return words.counted(self.counts)


@dataclass(frozen=True)
class Sight:
    """``why`` is there while the task is not running; ``family`` once it has children."""

    record: TaskRecord | HistoryRecord
    why: Explanation | None
    family: Family | None

    @property
    def ending(self) -> HistoryRecord | None:
        return self.record if isinstance(self.record, HistoryRecord) else None

    @property
    def reason(self) -> str:
        """Why it waits, in a sentence; nothing if its children are all it waits for."""
        if self.why is None:
            return ""
        reasons = {hold.reason for hold in self.why.holds}
        return "" if reasons and reasons <= {"children"} else str(self.why)


class Watcher:
    """Looks at one task again and again."""

    def __init__(self, scheduler: Scheduler, id: int) -> None:
        self._scheduler = scheduler
        self._id = id
        self._last: Sight | None = None
        self._reasons = Pace(LOOK_INTERVAL, DEAR_LOOKS)
        self._children = Pace(LOOK_INTERVAL, DEAR_LOOKS)

    async def look(self) -> Sight:
        try:
            record = await self._scheduler.get(self._id)
            why = await self._why(record)
        except TaskNotFound:
            if self._last is None:
                raise
            raise Refusal(f"task {self._id} has ended and is no longer in history", REFUSED) from None
        if why is not None and why.status != _state(record):
            # It went on between the two questions; the record is asked once more.
            record, why = await self._scheduler.get(self._id), None
        self._last = Sight(record, why, await self._family(record))
        return self._last

    async def _why(self, record: TaskRecord | HistoryRecord) -> Explanation | None:
        if isinstance(record, HistoryRecord) or record.status is Status.RUNNING:
            return None
        last = None if self._last is None else self._last.why
        if last is not None and last.status is record.status and not self._reasons.is_due:
            return last
        with self._reasons.look():
            return await self._scheduler.explain(self._id)

    async def _family(self, record: TaskRecord | HistoryRecord) -> Family | None:
        has_ended = isinstance(record, HistoryRecord)
        if not record.attempt:
            return None
        if self._last is not None and not has_ended and not self._children.is_due:
            return self._last.family
        with self._children.look():
            counts: dict[str, int] = {}
            for kind in (*Ending,) if has_ended else (*Status, *Ending):
                if count := await self._scheduler.count(parent=self._id, status=kind):
                    counts[str(kind)] = count
            if not counts:
                return None
            under_way = [
                child
                for status in (Status.RUNNING, Status.WAITING)
                if counts.get(status)
                for child in await self._scheduler.tasks(parent=self._id, status=status, limit=MOST_CHILDREN)
            ]
            return Family(counts, under_way)


def _state(record: TaskRecord | HistoryRecord) -> Status | Ending:
    return record.ending if isinstance(record, HistoryRecord) else record.status
