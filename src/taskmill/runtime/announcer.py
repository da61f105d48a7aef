"""The voice: turns what was committed into events, log records and woken waiters. Never before the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import assert_never

import msgspec

from taskmill.core.cron_port import Fired
from taskmill.core.ports import Durable
from taskmill.dispatch.shares import Reallocation
from taskmill.model.attempt import End, MakeWay, Return, TryAgain, Wait, readable_progress
from taskmill.model.commit import Commit
from taskmill.model.controls import Scope, ScopeKind
from taskmill.model.durations import from_ms
from taskmill.model.status import Ending
from taskmill.model.task import Claimed, Described, NewTask
from taskmill.model.turn import Judged, TurnResult
from taskmill.observe.bus import EventBus
from taskmill.observe.log import about, logger
from taskmill.runtime.attempt import Attempt
from taskmill.runtime.waiters import Waiters

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Announcer:
    """Tells listeners, waiters and the log."""

    def __init__(self, store: Durable, bus: EventBus, waiters: Waiters) -> None:
        self._store = store
        self._bus = bus
        self._waiters = waiters

    @property
    def is_awaited(self) -> bool:
        """Whether anyone would hear of an ending."""
        return self._bus.is_heard or self._waiters.are_there

    def follow(self, commit: Commit, now: int, durable: bool) -> None:
        """Announce new tasks at once, and everything else once it is durable."""
        self._submitted(commit)
        if commit.is_announced:
            if durable:
                self._committed(commit, now)
            else:
                self.once_durable(lambda: self._committed(commit, now))

    def once_durable(self, announce: Callable[[], None]) -> None:
        """Announce what was committed once it would survive a power cut."""
        if self.is_awaited:
            self._store.when_durable(announce)
        else:
            # Without listeners and waiters, one flush may serve many turns.
            announce()
            self._store.make_durable_soon()

    def outcome_dropped(self, task: Claimed) -> None:
        words = "attempt %d of task %d (%s) no longer holds its token; its outcome is dropped"
        logger.warning(words, task.attempt, task.id, task.type, extra=about(task.id, task.type))

    def _submitted(self, commit: Commit) -> None:
        if not self._bus.is_heard:
            self._bus.skip("TaskSubmitted", len(commit.fresh))
            if commit.blocked:
                self._bus.skip("TaskBlocked", len(commit.blocked))
        else:
            for id, task in commit.fresh:
                described = _described(id, task)
                self._bus.about("TaskSubmitted", described)
                if id in commit.blocked:
                    self._bus.about("TaskBlocked", described)

    def revived(self, task: Described) -> None:
        self._bus.about("TaskSubmitted", task)

    def dispatched(self, task: Claimed) -> None:
        if (counters := self._bus.counters) is not None:
            counters.dispatched(task)
        self._bus.about("TaskDispatched", task, attempt=task.attempt)

    def judged(self, verdicts: Sequence[Judged], result: TurnResult) -> None:
        """Announce verdicts that are durable."""
        if (counters := self._bus.counters) is not None:
            counters.attempts_over(verdicts)
        for judged in verdicts:
            self._judged(judged, result)

    def _judged(self, judged: Judged, result: TurnResult) -> None:
        task, now = judged.task, result.now
        match judged.verdict:
            case End() if task.id in result.waiting:
                pass  # its children end first
            case End() as end:
                self._ended(task, end, judged.duration_ms, result.commit.successors, now)
            case TryAgain(error, due_at):
                after = timedelta(milliseconds=0 if due_at is None else max(0, due_at - now))
                self._bus.about("TaskFailed", task, error=error, will_retry=True, retry_after=after)
            case Wait():
                if task.id in result.waiting:
                    self._bus.about("TaskWaiting", task, children=result.waiting[task.id])
            case MakeWay():
                if task.id not in result.waiting:
                    self._bus.about("TaskPreempted", task)
            case Return():
                logger.info("task %d (%s) returns to the queue", task.id, task.type, extra=about(task.id, task.type))

    def _committed(self, commit: Commit, now: int) -> None:
        for scope in commit.pauses_ended:
            self.scope_resumed(scope)
        for ended in commit.ended:
            self._ended(ended.task, ended.end, ended.duration_ms, commit.successors, now)
        for task in commit.unblocked:
            self._bus.about("TaskUnblocked", task)
        for task in commit.occurrences:
            self._bus.about("TaskSubmitted", task)
        for task in commit.resumed:
            self._bus.about("TaskResumed", task)
        for skipped in commit.skipped:
            self._bus.about("RecurringSkipped", skipped.task, count=skipped.count)

    def _ended(
        self, task: Claimed | Described, end: End, duration_ms: int | None, successors: Mapping[int, int], now: int
    ) -> None:
        match end.ending:
            case Ending.COMPLETED:
                if self._bus.is_heard:
                    duration = timedelta(milliseconds=duration_ms or 0)
                    self._bus.about("TaskCompleted", task, result=_decode(end.result or "null"), duration=duration)
                else:
                    self._bus.skip("TaskCompleted", 1)
            case Ending.FAILED:
                self._bus.about("TaskFailed", task, error=end.error or "", will_retry=False, retry_after=None)
            case Ending.DEAD_LETTER:
                self._bus.about("TaskFailed", task, error=end.error or "", will_retry=False, retry_after=None)
                logger.error("task %d (%s) is dead: %s", task.id, task.type, end.error, extra=about(task.id, task.type))
                self._bus.about("TaskDeadLettered", task, error=end.error)
            case Ending.CANCELLED:
                self._bus.about("TaskCancelled", task)
            case Ending.SUPERSEDED:
                self._bus.about("TaskSuperseded", task, new_task_id=successors.get(task.id))
            case Ending.EXPIRED:
                age = timedelta(milliseconds=now - task.created_at)
                self._bus.about("TaskExpired", task, dedup_key=task.key, age=age)
            case Ending.DEPENDENCY_FAILED:
                self._bus.about("TaskDependencyFailed", task, error=end.error or "")
            case _:
                assert_never(end.ending)
        self._waiters.ended([task.id])

    def fired(self, fired: Fired, zone: tzinfo) -> None:
        occurrence = from_ms(fired.occurrence).astimezone(zone)
        self._bus.about("CronFired", _described(fired.id, fired.task), name=fired.name, occurrence=occurrence)

    def paused(self, task: Described) -> None:
        self._bus.about("TaskPaused", task)

    def resumed(self, task: Described) -> None:
        self._bus.about("TaskResumed", task)

    @property
    def wants_aging(self) -> bool:
        """Whether anyone would hear that a task has grown more urgent."""
        return self._bus.is_wanted("TaskAged")

    def aged(self, task: Described, now: int) -> None:
        self._bus.about("TaskAged", task, wait_duration=timedelta(milliseconds=now - task.aged_from))

    def scope_paused(self, scope: Scope, until: datetime | None) -> None:
        logger.info("%s %r is paused", *scope)
        if scope.kind is ScopeKind.GROUP:
            self._bus.announce("GroupPaused", group=scope.name, until=until)

    def scope_resumed(self, scope: Scope) -> None:
        logger.info("%s %r is resumed", *scope)
        if scope.kind is ScopeKind.GROUP:
            self._bus.announce("GroupResumed", group=scope.name)

    def weight_changed(self, group: str, previous_weight: float, new_weight: float) -> None:
        self._bus.announce("GroupWeightChanged", group=group, previous_weight=previous_weight, new_weight=new_weight)

    def reallocated(self, changes: list[Reallocation]) -> None:
        """Shares have changed; what was told is no longer in ``changes``."""
        for change in changes:
            self._bus.announce("GroupAllocationChanged", **change._asdict())
        changes.clear()

    def progressed(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            if attempt.progress is not None:
                self._bus.about("TaskProgressed", attempt.task, progress=readable_progress(attempt.progress))


def _described(id: int, task: NewTask) -> Described:
    return Described(
        id=id,
        type=task.type,
        key=task.key,
        label=task.label,
        group=task.group,
        priority=task.priority,
        urgency=task.priority,
        tags=_encode(task.tags).decode() if task.tags else None,
        created_at=task.created_at,
        aged_from=max(task.queued_at, task.created_at),
    )
