"""Every kind of event that ``Scheduler.events`` yields."""

from taskmill.model.events import (
    Event,
    EventsMissed,
    TaskCancelled,
    TaskCompleted,
    TaskDeadLettered,
    TaskDispatched,
    TaskEvent,
    TaskExpired,
    TaskFailed,
    TaskProgressed,
    TaskSubmitted,
    TaskSuperseded,
)

__all__ = [
    "Event",
    "EventsMissed",
    "TaskCancelled",
    "TaskCompleted",
    "TaskDeadLettered",
    "TaskDispatched",
    "TaskEvent",
    "TaskExpired",
    "TaskFailed",
    "TaskProgressed",
    "TaskSubmitted",
    "TaskSuperseded",
]
