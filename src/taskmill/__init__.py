"""taskmill: an embedded, durable task scheduler on SQLite or PostgreSQL.

A name is imported with its module when it is first used: a command that only reads a store does not load the scheduler.
So are the public modules: after ``import taskmill``, ``taskmill.blocking.Scheduler`` can be used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from taskmill import asgi as asgi
    from taskmill import backup as backup
    from taskmill import blocking as blocking
    from taskmill import cron as cron
    from taskmill import doctor as doctor
    from taskmill import errors as errors
    from taskmill import events as events
    from taskmill import metrics as metrics
    from taskmill import moving as moving
    from taskmill import pressure as pressure
    from taskmill import reading as reading
    from taskmill import testing as testing
    from taskmill import web as web
    from taskmill.define.context import Context
    from taskmill.define.current import TaskLogFilter, current_task
    from taskmill.define.domain import Domain
    from taskmill.define.settings import SchedulerSettings
    from taskmill.define.task import Task
    from taskmill.handle import Handle
    from taskmill.model.browsing import Activity, ActivityPoint, MachineSnapshot, PriorityStep, TaskDetails, TaskPage
    from taskmill.model.exceptions import GiveUp, RetryLater
    from taskmill.model.explanation import Explanation, Hold, Remedy
    from taskmill.model.io_budget import IoBudget
    from taskmill.model.json_text import to_json
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
    from taskmill.model.machine import PressureSource, Reading, Resources, ResourceSampler, ThrottlePolicy
    from taskmill.model.progress import TaskProgress
    from taskmill.model.published import PublishedType
    from taskmill.model.records import AttemptError, ErrorGroup, HistoryRecord, TaskGraph, TaskRecord, TypeStats
    from taskmill.model.settings import Aging, Group, Priority, RateLimit, Retention, Retry
    from taskmill.model.snapshot import GroupSnapshot, NodeSnapshot, RateSnapshot, Schedule, Snapshot
    from taskmill.model.status import Ending, OnDependencyFailure, OnDuplicate, Status, TtlFrom
    from taskmill.model.submission import Submission
    from taskmill.scheduler import Scheduler
else:
    _MODULES = {
        "define.context": "Context",
        "define.current": "TaskLogFilter current_task",
        "define.domain": "Domain",
        "define.settings": "SchedulerSettings",
        "define.task": "Task",
        "handle": "Handle",
        "model.browsing": "Activity ActivityPoint MachineSnapshot PriorityStep TaskDetails TaskPage",
        "model.exceptions": "GiveUp RetryLater",
        "model.explanation": "Explanation Hold Remedy",
        "model.io_budget": "IoBudget",
        "model.json_text": "to_json",
        "model.looking_ahead": "Comparison Forecast Outlook ProjectedPhase Projection Range Run Waits",
        "model.machine": "PressureSource Reading ResourceSampler Resources ThrottlePolicy",
        "model.progress": "TaskProgress",
        "model.published": "PublishedType",
        "model.records": "AttemptError ErrorGroup HistoryRecord TaskGraph TaskRecord TypeStats",
        "model.settings": "Aging Group Priority RateLimit Retention Retry",
        "model.snapshot": "GroupSnapshot NodeSnapshot RateSnapshot Schedule Snapshot",
        "model.status": "Ending OnDependencyFailure OnDuplicate Status TtlFrom",
        "model.submission": "Submission",
        "scheduler": "Scheduler",
    }
    _MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
    _PUBLIC_MODULES = {
        "asgi",
        "backup",
        "blocking",
        "cron",
        "doctor",
        "errors",
        "events",
        "metrics",
        "moving",
        "pressure",
        "reading",
        "testing",
        "web",
    }

    def __getattr__(name: str) -> object:
        if name in _PUBLIC_MODULES:
            return import_module(f"taskmill.{name}")
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'taskmill' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"taskmill.{_MODULE_OF[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_PUBLIC_MODULES})


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
