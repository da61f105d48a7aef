"""The events of a scheduler, announced after the commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from taskmill.model.progress import TaskProgress
from taskmill.model.settings import AllocationReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The base of all events. ``seq`` grows by one with each event of a scheduler; ``at`` is when it was announced."""

    seq: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsMissed(Event):
    """``count`` events were dropped before this point, mostly because the listener was too slow; 0 if unknown."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEvent(Event):
    """An event about one task."""

    task_id: int
    type: str
    domain: str
    key: str | None
    label: str | None
    tags: Mapping[str, str]
    group: str
    base_priority: int
    effective_priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSubmitted(TaskEvent):
    """The task is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDispatched(TaskEvent):
    """An attempt was claimed and its handler starts."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgressed(TaskEvent):
    """The handler reported progress."""

    progress: TaskProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCompleted(TaskEvent):
    """The handler returned ``result``."""

    result: Any
    duration: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed(TaskEvent):
    """An attempt failed. With ``will_retry`` it runs again after ``retry_after``; else the task has ended."""

    error: str
    will_retry: bool
    retry_after: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDeadLettered(TaskEvent):
    """The last retry failed, or the task was quarantined; ``retry_dead`` returns it to the queue."""

    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCancelled(TaskEvent):
    """The task was cancelled and has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSuperseded(TaskEvent):
    """The task was replaced by ``new_task_id`` and has ended. The event describes the old task."""

    new_task_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskExpired(TaskEvent):
    """The task did not start within its TTL."""

    dedup_key: str | None
    age: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWaiting(TaskEvent):
    """The handler returned while ``children`` of its children have not ended; the task holds no slot meanwhile."""

    children: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskBlocked(TaskEvent):
    """The task waits for its dependencies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskUnblocked(TaskEvent):
    """The last dependency of the task was met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDependencyFailed(TaskEvent):
    """The task ended because one of its dependencies did not succeed."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPaused(TaskEvent):
    """The task was paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResumed(TaskEvent):
    """The task was resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurringSkipped(TaskEvent):
    """``count`` occurrences were skipped: while this one was active, the series was paused, or no dispatcher ran."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CronFired(TaskEvent):
    """The cron task ``name`` fired as this task, for ``occurrence``, the latest that has passed."""

    name: str
    occurrence: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPreempted(TaskEvent):
    """The task was preempted by a more urgent one or by pressure; it is paused and returns to the queue later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAged(TaskEvent):
    """The task has waited so long that its effective priority passed a named level or ``aging.urgent``."""

    wait_duration: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEvent(Event):
    """An event about one group; ungrouped tasks are the group ``""``."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPaused(GroupEvent):
    """No task of the group starts until it is resumed, or until ``until`` if that is set."""

    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResumed(GroupEvent):
    """The group may start tasks again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWeightChanged(GroupEvent):
    """The weight of the group was set."""

    previous_weight: float
    new_weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAllocationChanged(GroupEvent):
    """The group's share of the slots has changed."""

    previous_slots: int
    new_slots: int
    reason: AllocationReason
