"""All errors that taskmill raises, grouped by the role that must act.

::

    TaskmillError
    ├── ConfigError                the programmer, at start: a setting is wrong
    │   ├── InvalidCronExpression    .field of .expression, and the .reason
    │   ├── InvalidRegistration      .index and .name in a list of cron tasks, and the .reason
    │   ├── DuplicateRegistration    .name occurs twice in a list of cron tasks
    │   └── AlreadyActive            the cron scheduler is already .state
    ├── SubmissionError            the caller, now: this submission was not stored
    │   ├── DuplicateTask            .existing_id holds the key
    │   ├── UnknownTaskType
    │   ├── PayloadTooLarge
    │   ├── InvalidDependency        .id does not exist
    │   ├── DependencyFailed         .id has already failed
    │   ├── CyclicDependency
    │   └── InvalidTag
    ├── StoreError                 the operator: the file or the server has a problem
    │   ├── StoreBusy                another process held the write lock for too long
    │   ├── StoreCorrupt
    │   ├── SchemaTooNew
    │   ├── AlreadyRunning           another scheduler dispatches this store
    │   └── StoreLost                this scheduler can no longer use its store: open it again
    │       └── StoreMoved             the queue is elsewhere, or on its way
    ├── TaskFailed                 the caller of ``result()``: .record is the history record
    ├── TaskNotFound
    ├── TimedOut                   the caller: the ``timeout=`` of the call has passed
    └── InvalidState               the call does not apply in the present state

``RetryLater`` and ``GiveUp`` are not errors: handlers raise them to end an attempt on purpose. They are in
:mod:`taskmill.model.exceptions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskmill.model.records import HistoryRecord


class TaskmillError(Exception):
    """The base class of all errors that taskmill raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with ``args``, which contains only the message and not the other attributes.
        return _restored, (type(self), self.args), vars(self)


class ConfigError(TaskmillError, ValueError):
    """A setting of a scheduler, domain, task type or option is wrong."""


class InvalidCronExpression(ConfigError):
    """A cron expression was refused. ``field`` is the wrong field, or ``"expression"`` for the whole."""

    def __init__(self, expression: object, field: str, reason: str) -> None:
        super().__init__(expression, field, reason)
        self.expression = expression
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        where = "cron expression" if self.field == "expression" else f"{self.field} of cron expression"
        return f"{where} {_shortened(self.expression)}: {self.reason}"


class InvalidRegistration(ConfigError):
    """A cron task in a list was refused, and nothing was stored. ``index`` counts from 0.

    ``name`` is ``None`` if it is not known.
    """

    def __init__(self, index: int, name: str | None, reason: str) -> None:
        super().__init__(index, name, reason)
        self.index = index
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        who = "" if self.name is None else f" ({_shortened(self.name)})"
        return f"cron registration {self.index}{who}: {self.reason}"


class DuplicateRegistration(ConfigError):
    """Two cron tasks in a list have the same name; nothing was stored."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"cron task {_shortened(self.name)} is registered twice: give each cron task its own name"


class AlreadyActive(ConfigError):
    """A cron scheduler that is ``initializing`` or ``running`` was initialized again."""

    def __init__(self, state: str) -> None:
        super().__init__(state)
        self.state = state

    def __str__(self) -> str:
        return f"the cron scheduler is already {self.state}: stop it before you initialize it again"


class SubmissionError(TaskmillError, ValueError):
    """A submission was refused; nothing was stored."""


class DuplicateTask(SubmissionError):
    """An active task holds the key, and the submission has ``on_duplicate="reject"``."""

    def __init__(self, message: str, existing_id: int) -> None:
        super().__init__(message)
        self.existing_id = existing_id


class UnknownTaskType(SubmissionError):
    """Neither the scheduler nor its store knows a task type of this name."""


class PayloadTooLarge(SubmissionError):
    """The encoded payload exceeds 1 MiB."""


class InvalidDependency(SubmissionError):
    """A dependency names a task id, or the ``ref`` of a submission, that does not exist."""

    def __init__(self, message: str, id: int | str) -> None:
        super().__init__(message)
        self.id = id


class DependencyFailed(SubmissionError):
    """A dependency has already ended without success."""

    def __init__(self, message: str, id: int) -> None:
        super().__init__(message)
        self.id = id


class CyclicDependency(SubmissionError):
    """The submission would close a cycle of dependencies."""


class InvalidTag(SubmissionError):
    """A tag is too long or of the wrong type, or there are too many tags."""


class StoreError(TaskmillError):
    """The file or server behind the scheduler failed."""


class StoreBusy(StoreError):
    """Another process held the write lock for longer than taskmill waits for it."""


class StoreCorrupt(StoreError):
    """The file is not a taskmill database, or a row in it cannot be read."""


class SchemaTooNew(StoreError):
    """The file was written by a newer taskmill."""


class AlreadyRunning(StoreError):
    """Another scheduler dispatches this store."""


class StoreLost(StoreError):
    """The scheduler can no longer use its store and stops; the message says why and what to do."""


class StoreMoved(StoreLost):
    """The queue of this store was moved to another store, or is being moved; the message says where it is."""


class TaskFailed(TaskmillError):
    """A task ended without success; ``record`` is its history record."""

    def __init__(self, message: str, record: HistoryRecord) -> None:
        super().__init__(message)
        self.record = record


class TaskNotFound(TaskmillError, LookupError):
    """No active or ended task has this id."""


class TimedOut(TaskmillError, TimeoutError):
    """The ``timeout=`` of a method has passed."""


class InvalidState(TaskmillError):
    """The call does not apply to the task or scheduler in its present state."""


def _restored(kind: type[TaskmillError], args: tuple[Any, ...]) -> TaskmillError:
    """Recreate a copied or unpickled error without its attributes, which are restored afterwards."""
    return kind.__new__(kind, *args)


def _shortened(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
