"""taskmill: an embedded, durable task scheduler on SQLite or PostgreSQL."""

from taskmill._version import __version__
from taskmill.define.context import Context
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
from taskmill.model.aging import Aging
from taskmill.model.explanation import Explanation, Hold
from taskmill.model.graph import TaskGraph
from taskmill.model.group import Group
from taskmill.model.io_budget import IoBudget
from taskmill.model.priority import Priority
from taskmill.model.progress import TaskProgress
from taskmill.model.rate_limit import RateLimit
from taskmill.model.readings import Reading
from taskmill.model.records import HistoryRecord, TaskRecord, TypeStats
from taskmill.model.resources import PressureSource, Resources, ResourceSampler
from taskmill.model.retention import Retention
from taskmill.model.retry import Retry
from taskmill.model.signals import GiveUp, RetryLater
from taskmill.model.snapshot import GroupSnapshot, NodeSnapshot, RateSnapshot, Schedule, Snapshot
from taskmill.model.status import Ending, OnDependencyFailure, OnDuplicate, Status, TtlFrom
from taskmill.model.submission import Submission
from taskmill.model.throttle import ThrottlePolicy
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
    "TaskNotFound",
    "TaskProgress",
    "TaskRecord",
    "TaskmillError",
    "ThrottlePolicy",
    "TtlFrom",
    "TypeStats",
    "UnknownTaskType",
    "__version__",
]
