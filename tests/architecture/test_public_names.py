"""The public names are fixed: adding or removing one is a decision, made here."""

from __future__ import annotations

import importlib
import inspect

import pytest

import taskmill
import taskmill.cron
import taskmill.events
from taskmill import TaskmillError

NAMES = {
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
    "PublishedType",
    "ProjectedPhase",
    "Projection",
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
}

EVENTS = {
    "Event",
    "TaskPreempted",
    "TaskAged",
    "CronFired",
    "GroupWeightChanged",
    "GroupResumed",
    "GroupPaused",
    "GroupEvent",
    "GroupAllocationChanged",
    "EventsMissed",
    "RecurringSkipped",
    "TaskBlocked",
    "TaskCancelled",
    "TaskCompleted",
    "TaskDeadLettered",
    "TaskDependencyFailed",
    "TaskDispatched",
    "TaskEvent",
    "TaskExpired",
    "TaskFailed",
    "TaskPaused",
    "TaskProgressed",
    "TaskResumed",
    "TaskSubmitted",
    "TaskSuperseded",
    "TaskUnblocked",
    "TaskWaiting",
}

CRON = {
    "AlreadyActive",
    "Cron",
    "CronExpression",
    "CronScheduler",
    "DuplicateRegistration",
    "InvalidCronExpression",
    "InvalidRegistration",
}

MODULES = [
    "taskmill",
    "taskmill.asgi",
    "taskmill.cron",
    "taskmill.doctor",
    "taskmill.events",
    "taskmill.metrics",
    "taskmill.testing",
    "taskmill.web",
]

ABOUT_A_TASK = {"task_id", "type", "domain", "key", "label", "tags", "group", "base_priority", "effective_priority"}


def test_the_names_of_taskmill_are_these() -> None:
    assert set(taskmill.__all__) == NAMES


def test_the_names_of_events_are_these() -> None:
    assert set(taskmill.events.__all__) == EVENTS


def test_the_names_of_cron_are_these() -> None:
    assert set(taskmill.cron.__all__) == CRON


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_listed_once_and_in_order(module: str) -> None:
    listed = importlib.import_module(module).__all__
    assert list(listed) == sorted(set(listed))


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_can_be_imported_and_is_documented(module: str) -> None:
    loaded = importlib.import_module(module)
    assert inspect.getdoc(loaded)
    for name in loaded.__all__:
        value = getattr(loaded, name)
        if name == "__version__":
            assert isinstance(value, str)
            continue
        own = value.__doc__ if inspect.isfunction(value) else value.__dict__.get("__doc__")
        assert own, f"{module}.{name} has no docstring"
        assert not own.startswith(f"{name}("), f"{module}.{name} has only the signature as its docstring"


@pytest.mark.parametrize(
    "kind", [taskmill.Scheduler, taskmill.Handle, taskmill.Context, taskmill.Task, taskmill.Domain, taskmill.Retry]
)
def test_every_public_verb_is_documented(kind: type) -> None:
    # Attributes of a domain or a submission that only the engine uses are not for users.
    inner = {"bind", "unbind", "type", "domain"}
    undocumented = [
        name
        for name, value in vars(kind).items()
        if not name.startswith("_")
        and name not in inner
        and (inspect.isroutine(value) or isinstance(value, property))
        and not inspect.getdoc(value)
    ]
    assert undocumented == []


def test_every_event_about_a_task_carries_its_description() -> None:
    kinds = [getattr(taskmill.events, name) for name in taskmill.events.__all__]
    for kind in kinds:
        fields = {field for base in kind.__mro__ for field in getattr(base, "__annotations__", {})}
        assert {"seq", "at"} <= fields
        if kind.__name__.startswith("Task"):
            assert fields >= ABOUT_A_TASK


def test_every_error_is_a_taskmill_error_except_the_words_of_handlers() -> None:
    errors = [
        value
        for name in taskmill.__all__
        if isinstance(value := getattr(taskmill, name), type) and issubclass(value, Exception)
    ]
    assert {kind.__name__ for kind in errors if not issubclass(kind, TaskmillError)} == {"RetryLater", "GiveUp"}


def test_a_scheduler_takes_all_its_settings_by_their_names() -> None:
    given = inspect.signature(taskmill.Scheduler).parameters.values()
    store, *settings = given
    assert (store.name, store.default) == ("store", ":memory:")
    assert {each.kind for each in settings} == {inspect.Parameter.KEYWORD_ONLY}
    assert [each.name for each in settings] == [
        "domains",
        "cron",
        "max_concurrency",
        "retry",
        "default_ttl",
        "groups",
        "default_group",
        "aging",
        "preempt_at",
        "pressure",
        "throttle",
        "resources",
        "bandwidth_limit",
        "retention",
        "state",
        "middleware",
        "tracing",
        "expiry_sweep_interval",
        "cancel_timeout",
        "shutdown_grace",
        "durability",
        "clock",
    ]


def test_every_filter_is_typed_and_checked() -> None:
    from taskmill.model import filters

    assert filters.FilterOptions.__annotations__.keys() == filters._CHECKS.keys()
