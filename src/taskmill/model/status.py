"""The status and ending of a task, and the options that are enums."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeVar

from taskmill.errors import ConfigError


class Status(StrEnum):
    """The states of an active task."""

    PENDING = "pending"
    SCHEDULED = "scheduled"
    BLOCKED = "blocked"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING = "waiting"


WAITING_TO_RUN = frozenset({Status.PENDING, Status.SCHEDULED, Status.BLOCKED, Status.PAUSED})
"""The statuses of a task that waits to run: it has no live attempt and does not wait for children."""


class Ending(StrEnum):
    """How a task ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    DEPENDENCY_FAILED = "dependency_failed"


# Python 3.11 is slow to look up a member of an enum. Code that runs for every task uses these names.
PENDING, COMPLETED = Status.PENDING, Ending.COMPLETED


class OnDuplicate(StrEnum):
    """What a submission does when an active task already holds its key."""

    SKIP = "skip"
    SUPERSEDE = "supersede"
    REJECT = "reject"
    REQUEUE = "requeue"


class TtlFrom(StrEnum):
    """When the TTL starts to count."""

    SUBMISSION = "submission"
    FIRST_ATTEMPT = "first_attempt"


class OnDependencyFailure(StrEnum):
    """What happens to a task whose dependency did not succeed."""

    CANCEL = "cancel"
    FAIL = "fail"
    IGNORE = "ignore"


StatusWord = Literal["pending", "scheduled", "blocked", "running", "paused", "waiting"]
EndingWord = Literal["completed", "failed", "dead_letter", "cancelled", "superseded", "expired", "dependency_failed"]
OnDuplicateWord = Literal["skip", "supersede", "reject", "requeue"]
TtlFromWord = Literal["submission", "first_attempt"]
OnDependencyFailureWord = Literal["cancel", "fail", "ignore"]
OnParentExpiry = Literal["complete", "cancel"]
"""What happens to a running child when its parent expires."""

Kind = Literal["inserted", "duplicate", "upgraded", "requeued", "superseded"]
RunIn = Literal["process"]
ErrorKind = Literal["failed", "timeout", "crashed", "gave_up"]
"""Why an attempt failed."""

_Choice = TypeVar("_Choice", bound=StrEnum)


def choice(kind: type[_Choice], value: object, name: str, error: type[Exception] = ConfigError) -> _Choice:
    """Return the member of ``kind`` that ``value`` names, or raise an error that lists the possible values."""
    try:
        return kind(value)  # type: ignore[arg-type]
    except ValueError:
        words = ", ".join(repr(str(member)) for member in kind)
        raise error(f"{name} must be one of {words}, got {value!r}") from None
