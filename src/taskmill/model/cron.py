"""Cron tasks as values: what a program declares, and what is stored about each.

What they mean is for :mod:`taskmill.policy.cron`. Nothing here is checked: a list of declarations is judged as a
whole, so that an error can say which of them it is about.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from taskmill.model.arguments import SettingsMeta
from taskmill.model.durations import Duration


class Cron(msgspec.Struct, frozen=True, metaclass=SettingsMeta):
    """A task that runs by the clock: a name, a cron expression, what to call, and how long after a failure again.

    ``handler`` is a task, or a callable without arguments. ``retry_delay`` is a ``timedelta`` or seconds.
    """

    name: str
    expression: str
    handler: Callable[..., Any]
    retry_delay: Duration


CronTuple = tuple[str, str, Callable[..., Any], Duration]
"""The same as a plain tuple."""


class RunOutcome(StrEnum):
    """How the last run of a cron task ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    """It was cut short by a stop or a crash; it will start again at once."""
    QUARANTINED = "quarantined"
    """It took its process down too often; the next occurrence runs."""


class Stretch(NamedTuple):
    """Occurrences in a row that have run, from the first to the last."""

    first: int
    last: int
    by: str | None = None
    """The expression whose occurrences they are, if it was changed since."""


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence at work: from its first attempt to its success, or until a later one takes its place."""

    occurrence: int
    attempt: int = 1
    crashes: int = 0
    retry_at: int | None = None
    """When it may be attempted again; ``None`` while an attempt runs."""


class CronState(msgspec.Struct, frozen=True, kw_only=True):
    """All that is stored about one cron task. Instants are milliseconds since the epoch."""

    name: str
    expression: str
    """As it was declared, blanks included."""
    retry_delay_ms: int
    since: int
    """Occurrences later than this are still to be judged. The start of the last attempt, unless the clock went back."""
    ran: tuple[Stretch, ...] = ()
    """Occurrences that have run, in order: they do not run again when the clock goes back."""
    firing: Firing | None = None
    last_attempt_at: int | None = None
    last_success_at: int | None = None
    last_failure_at: int | None = None
    last_outcome: RunOutcome | None = None

    @property
    def is_running(self) -> bool:
        return self.firing is not None and self.firing.retry_at is None

    @property
    def retry_at(self) -> int | None:
        return None if self.firing is None else self.firing.retry_at
