"""taskmill: an embedded, durable task scheduler on SQLite or PostgreSQL."""

from taskmill.define.context import Context
from taskmill.define.current import TaskLogFilter, current_task
from taskmill.define.domain import Domain
from taskmill.define.settings import SchedulerSettings
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
from taskmill.model.attempt import GiveUp, RetryLater, TaskProgress
from taskmill.model.explanation import Explanation, Hold
from taskmill.model.io_budget import IoBudget
from taskmill.model.json_text import to_json
from taskmill.model.machine import PressureSource, Reading, Resources, ResourceSampler, ThrottlePolicy
from taskmill.model.records import HistoryRecord, TaskGraph, TaskRecord, TypeStats
from taskmill.model.settings import Aging, Group, Priority, RateLimit, Retention, Retry
from taskmill.model.snapshot import GroupSnapshot, NodeSnapshot, RateSnapshot, Schedule, Snapshot
from taskmill.model.status import Ending, OnDependencyFailure, OnDuplicate, Status, TtlFrom
from taskmill.model.submission import Submission
from taskmill.scheduler import Scheduler

__all__ = [
    "Aging",
    "AlreadyRunning",
    "ConfigError",
    "Context",
    "CyclicDependency",
    "DependencyFailed",
    "Domain",
    "DuplicateTask",
    "Ending",
    "Explanation",
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
    "NodeSnapshot",
    "OnDependencyFailure",
    "OnDuplicate",
    "PayloadTooLarge",
    "PressureSource",
    "Priority",
    "RateLimit",
    "RateSnapshot",
    "Reading",
    "ResourceSampler",
    "Resources",
    "Retention",
    "Retry",
    "RetryLater",
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
    "TaskFailed",
    "TaskGraph",
    "TaskLogFilter",
    "TaskNotFound",
    "TaskProgress",
    "TaskRecord",
    "TaskmillError",
    "ThrottlePolicy",
    "TtlFrom",
    "TypeStats",
    "UnknownTaskType",
    "__version__",
    "current_task",
    "to_json",
]

__version__ = "0.1.0"
