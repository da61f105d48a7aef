"""The voice: turns what was committed into events, log records and woken waiters. Never before the commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

import msgspec

from taskmill.model.progress import readable
from taskmill.model.stages import Claimed, Described, NewTask
from taskmill.model.status import Ending
from taskmill.model.verdict import End, Return, TryAgain
from taskmill.observe.bus import EventBus
from taskmill.observe.log import about, logger
from taskmill.ports import Arrived, Judged
from taskmill.runtime.attempt import Attempt
from taskmill.runtime.waiters import Waiters

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Announcer:
    """Tells listeners, waiters and the log."""

    def __init__(self, bus: EventBus, waiters: Waiters) -> None:
        self._bus = bus
        self._waiters = waiters

    @property
    def is_awaited(self) -> bool:
        """Whether anyone would hear of an ending."""
        return self._bus.is_heard or self._waiters.are_there

    def arrived(self, arrived: Arrived) -> None:
        for old, new_id in arrived.superseded:
            self._bus.about("TaskSuperseded", old, new_task_id=new_id)
            self._waiters.ended([old.id])
        if not self._bus.is_heard:
            self._bus.skip(len(arrived.fresh))
            return
        for id, task in arrived.fresh:
            self._bus.about("TaskSubmitted", _described(id, task))

    def revived(self, task: Described) -> None:
        self._bus.about("TaskSubmitted", task)

    def dispatched(self, task: Claimed) -> None:
        self._bus.about("TaskDispatched", task, attempt=task.attempt)

    def judged(self, verdicts: Iterable[Judged], now: int, successors: Mapping[int, int]) -> None:
        """Verdicts are durable; ``successors`` are the tasks that may start now that others have ended."""
        for judged in verdicts:
            self._judged(judged, now, successors)

    def _judged(self, judged: Judged, now: int, successors: Mapping[int, int]) -> None:
        task = judged.task
        match judged.verdict:
            case End(ending, result, error):
                self._ended(judged, ending, result, error, successors)
                self._waiters.ended([task.id])
            case TryAgain(error, due_at):
                after = timedelta(milliseconds=0 if due_at is None else due_at - now)
                self._bus.about("TaskFailed", task, error=error, will_retry=True, retry_after=after)
            case Return():
                logger.info("task %d (%s) returns to the queue", task.id, task.type, extra=about(task.id, task.type))

    def _ended(
        self, judged: Judged, ending: Ending, result: str | None, error: str | None, successors: Mapping[int, int]
    ) -> None:
        task = judged.task
        match ending:
            case Ending.COMPLETED:
                if self._bus.is_heard:
                    duration = timedelta(milliseconds=judged.duration_ms)
                    self._bus.about("TaskCompleted", task, result=_decode(result or "null"), duration=duration)
                else:
                    self._bus.skip(1)
            case Ending.FAILED:
                self._bus.about("TaskFailed", task, error=error or "", will_retry=False, retry_after=None)
            case Ending.DEAD_LETTER:
                self._bus.about("TaskFailed", task, error=error or "", will_retry=False, retry_after=None)
                self.dead_lettered(task, error)
            case Ending.CANCELLED:
                self._bus.about("TaskCancelled", task)
            case Ending.SUPERSEDED:
                self._bus.about("TaskSuperseded", task, new_task_id=successors.get(task.id))
            case _:
                raise AssertionError(f"an attempt cannot end as {ending}")

    def dead_lettered(self, task: Claimed | Described, error: str | None) -> None:
        logger.error("task %d (%s) is dead: %s", task.id, task.type, error, extra=about(task.id, task.type))
        self._bus.about("TaskDeadLettered", task, error=error)

    def quarantined(self, tasks: Iterable[Described], error: str) -> None:
        for task in tasks:
            match task.stop:
                case None:
                    self.dead_lettered(task, error)
                case "supersede":
                    self._bus.about("TaskSuperseded", task, new_task_id=None)
                case _:
                    self._bus.about("TaskCancelled", task)
            self._waiters.ended([task.id])

    def cancelled(self, tasks: Iterable[Described]) -> None:
        for task in tasks:
            self._bus.about("TaskCancelled", task)
            self._waiters.ended([task.id])

    def expired(self, tasks: Iterable[Described], now: int) -> None:
        for task in tasks:
            age = timedelta(milliseconds=now - task.created_at)
            self._bus.about("TaskExpired", task, dedup_key=task.key, age=age)
            self._waiters.ended([task.id])

    def progressed(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            if attempt.progress is not None:
                self._bus.about("TaskProgressed", attempt.task, progress=readable(attempt.progress))


def _described(id: int, task: NewTask) -> Described:
    return Described(
        id=id,
        type=task.type,
        key=task.key,
        label=task.label,
        group=task.group,
        priority=task.priority,
        tags=_encode(task.tags).decode() if task.tags else None,
        created_at=task.created_at,
        status=task.status,
        stop=task.stop,
    )
