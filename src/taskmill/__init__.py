"""taskmill: an embedded, durable task scheduler on SQLite or PostgreSQL."""

from typing import TYPE_CHECKING

from taskmill.define.context import Context
from taskmill.define.current import TaskLogFilter, current_task
from taskmill.define.domain import Domain
from taskmill.define.task import Task
from taskmill.errors import (
    AlreadyRunning,
    ConfigError,
    CyclicDependency,
    DependencyFailed,
    DuplicateTask,
    InvalidDependency,
    InvalidState,
    InvalidTag,
    PayloadTooLarge,
    SchemaTooNew,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreMoved,
    SubmissionError,
    TaskFailed,
    TaskmillError,
    TaskNotFound,
    UnknownTaskType,
)
from taskmill.handle import Handle
from taskmill.model.browsing import Activity, ActivityPoint, MachineSnapshot, PriorityStep, TaskDetails, TaskPage
from taskmill.model.exceptions import GiveUp, RetryLater
from taskmill.model.io_budget import IoBudget
from taskmill.model.json_text import to_json
from taskmill.model.machine import PressureSource, Reading, Resources, ResourceSampler, ThrottlePolicy
from taskmill.model.progress import TaskProgress
from taskmill.model.published import PublishedType
from taskmill.model.records import (
    AttemptError,
    ErrorGroup,
    HistoryRecord,
    TaskGraph,
    TaskRecord,
    TypeStats,
)
from taskmill.model.settings import Aging, Group, Priority, RateLimit, Retention, Retry
from taskmill.model.status import Ending, OnDependencyFailure, OnDuplicate, Status, TtlFrom
from taskmill.model.submission import Submission
from taskmill.scheduler import Scheduler

if TYPE_CHECKING:
    from taskmill.define.settings import SchedulerSettings
    from taskmill.model.explanation import Explanation, Hold, Remedy
    from taskmill.model.looking_ahead import (
        Comparison,
        Forecast,
        Outlook,
        ProjectedPhase,
        Projection,
        Range,
        Run,
        Waits,
    )
    from taskmill.model.snapshot import GroupSnapshot, NodeSnapshot, RateSnapshot, Schedule, Snapshot
else:
    _LATER = {
        "taskmill.define.settings": ("SchedulerSettings",),
        "taskmill.model.explanation": ("Explanation", "Hold", "Remedy"),
        "taskmill.model.looking_ahead": (
            "Comparison",
            "Forecast",
            "Outlook",
            "ProjectedPhase",
            "Projection",
            "Range",
            "Run",
            "Waits",
        ),
        "taskmill.model.snapshot": ("GroupSnapshot", "NodeSnapshot", "RateSnapshot", "Schedule", "Snapshot"),
    }
    """The names whose modules are imported when they are first used: most programs never name them."""

    def __getattr__(name: str) -> object:
        from importlib import import_module

        for module, names in _LATER.items():
            if name in names:
                return getattr(import_module(module), name)
        raise AttributeError(f"module 'taskmill' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "Activity",
    "ActivityPoint",
    "Aging",
    "AlreadyRunning",
    "AttemptError",
    "Comparison",
    "ConfigError",
    "Context",
    "CyclicDependency",
    "DependencyFailed",
    "Domain",
    "DuplicateTask",
    "Ending",
    "ErrorGroup",
    "Explanation",
    "Forecast",
    "GiveUp",
    "Group",
    "GroupSnapshot",
    "Handle",
    "HistoryRecord",
    "Hold",
    "InvalidDependency",
    "InvalidState",
    "InvalidTag",
    "IoBudget",
    "MachineSnapshot",
    "NodeSnapshot",
    "OnDependencyFailure",
    "OnDuplicate",
    "Outlook",
    "PayloadTooLarge",
    "PressureSource",
    "Priority",
    "PriorityStep",
    "ProjectedPhase",
    "Projection",
    "PublishedType",
    "Range",
    "RateLimit",
    "RateSnapshot",
    "Reading",
    "Remedy",
    "ResourceSampler",
    "Resources",
    "Retention",
    "Retry",
    "RetryLater",
    "Run",
    "Schedule",
    "Scheduler",
    "SchedulerSettings",
    "SchemaTooNew",
    "Snapshot",
    "Status",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreMoved",
    "Submission",
    "SubmissionError",
    "Task",
    "TaskDetails",
    "TaskFailed",
    "TaskGraph",
    "TaskLogFilter",
    "TaskNotFound",
    "TaskPage",
    "TaskProgress",
    "TaskRecord",
    "TaskmillError",
    "ThrottlePolicy",
    "TtlFrom",
    "TypeStats",
    "UnknownTaskType",
    "Waits",
    "__version__",
    "current_task",
    "to_json",
]

__version__ = "0.2.0"
