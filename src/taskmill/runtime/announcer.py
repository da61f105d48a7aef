"""The voice: turns what was committed into events, log records and woken waiters. Never before the commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

import msgspec

from taskmill.model.progress import readable
from taskmill.model.stages import Claimed, Described, NewTask, Stored
from taskmill.model.status import Ending
from taskmill.model.verdict import End, Return, TryAgain
from taskmill.observe.bus import EventBus
from taskmill.observe.log import about, logger
from taskmill.ports import Judged
from taskmill.runtime.attempt import Attempt
from taskmill.runtime.waiters import Waiters

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Announcer:
    """Tells listeners, waiters and the log."""

    def __init__(self, bus: EventBus, waiters: Waiters) -> None:
        self._bus = bus
        self._waiters = waiters

    def submitted(self, tasks: Sequence[NewTask], stored: Sequence[Stored]) -> None:
        if not self._bus.is_heard:
            self._bus.skip(sum(answer.kind == "inserted" for answer in stored))
            return
        for task, answer in zip(tasks, stored, strict=True):
            if answer.kind == "inserted":
                tags = _encode(task.tags).decode() if task.tags else None
                self._bus.about(
                    "TaskSubmitted",
                    Described(
                        id=answer.id,
                        type=task.type,
                        key=task.key,
                        label=task.label,
                        group=task.group,
                        priority=task.priority,
                        tags=tags,
                        created_at=task.created_at,
                        status=task.status,
                        stop=None,
                    ),
                )

    def revived(self, task: Described) -> None:
        self._bus.about("TaskSubmitted", task)

    def dispatched(self, task: Claimed) -> None:
        self._bus.about("TaskDispatched", task, attempt=task.attempt)

    def judged(self, verdicts: Iterable[Judged], now: int) -> None:
        for judged in verdicts:
            self._judged(judged, now)

    def _judged(self, judged: Judged, now: int) -> None:
        task = judged.task
        match judged.verdict:
            case End(ending, result, error):
                self._ended(judged, ending, result, error)
                self._waiters.ended([task.id])
            case TryAgain(error, due_at):
                after = timedelta(milliseconds=0 if due_at is None else due_at - now)
                self._bus.about("TaskFailed", task, error=error, will_retry=True, retry_after=after)
            case Return():
                logger.info("task %d (%s) returns to the queue", task.id, task.type, extra=about(task.id, task.type))

    def _ended(self, judged: Judged, ending: Ending, result: str | None, error: str | None) -> None:
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
            case _:
                raise AssertionError(f"an attempt cannot end as {ending}")

    def dead_lettered(self, task: Claimed | Described, error: str | None) -> None:
        logger.error("task %d (%s) is dead: %s", task.id, task.type, error, extra=about(task.id, task.type))
        self._bus.about("TaskDeadLettered", task, error=error)

    def quarantined(self, tasks: Iterable[Described], error: str) -> None:
        for task in tasks:
            if task.stop is None:
                self.dead_lettered(task, error)
            else:
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
