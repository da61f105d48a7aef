"""Cron tasks as values: the declaration, and the stored state.

:mod:`taskmill.policy.cron` applies them. Nothing is checked here: a list of declarations is checked as a whole, so that
an error can name the position in the list.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from taskmill.model.arguments import SettingsMeta
from taskmill.model.durations import Duration


class Cron(msgspec.Struct, frozen=True, metaclass=SettingsMeta):
    """A cron task: a name, a cron expression, a handler, and the delay before a failed run is retried.

    ``handler`` is a task or a callable without arguments. ``retry_delay`` is a ``timedelta`` or seconds.
    """

    name: str
    expression: str
    handler: Callable[..., Any]
    retry_delay: Duration


CronTuple = tuple[str, str, Callable[..., Any], Duration]
"""A cron task as a plain tuple."""


class RunOutcome(StrEnum):
    """How the last run of a cron task ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    """It was interrupted by a stop or a crash; it restarts at once."""
    QUARANTINED = "quarantined"
    """It crashed its process too often; the next occurrence runs."""


class Stretch(NamedTuple):
    """Consecutive occurrences that have run, from the first to the last."""

    first: int
    last: int
    by: str | None = None
    """The expression they occurred under, if it has changed since."""


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence under way: from its first attempt to its success, or until a later occurrence replaces it."""

    occurrence: int
    attempt: int = 1
    crashes: int = 0
    retry_at: int | None = None
    """When it may be retried; ``None`` while an attempt runs."""
    by_hand: bool = False
    """True if a caller requested it, beside the schedule; its occurrence is then the instant of the request."""


class CronState(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of one cron task. Instants are milliseconds since the epoch."""

    name: str
    expression: str
    """The expression as declared, blanks included."""
    retry_delay_ms: int
    since: int
    """Only later occurrences can be due. It is the start of the last attempt, unless the clock was set back."""
    ran: tuple[Stretch, ...] = ()
    """Occurrences that have run, in order; they do not run again if the clock is set back."""
    firing: Firing | None = None
    last_attempt_at: int | None = None
    last_success_at: int | None = None
    last_failure_at: int | None = None
    last_outcome: RunOutcome | None = None
    options: str | None = None
    """The options of its firings, for processes that do not declare it, as JSON; ``None`` if it has none of its own."""

    @property
    def is_running(self) -> bool:
        return self.firing is not None and self.firing.retry_at is None

    @property
    def retry_at(self) -> int | None:
        return None if self.firing is None else self.firing.retry_at
