"""How an attempt ended, as the runtime saw it. :mod:`taskmill.policy.verdicts` says what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class StopReason(StrEnum):
    """Why an attempt was asked to stop before its handler returned."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned."""

    result: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised, or exceeded its timeout. ``after_ms`` is what ``RetryLater`` asked for."""

    error: str
    after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The handler said that it cannot succeed."""

    error: str


@dataclass(frozen=True, slots=True)
class Unrunnable:
    """The handler could not be called: the stored task does not fit it. Mended code can revive the task."""

    error: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The attempt ended because it was asked to, for a reason that is not a failure."""

    reason: StopReason
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Crashed:
    """The process that ran the handler died under it."""

    error: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The handler let its cancellation through; the attempt knows why it was cancelled, if it was."""


RawOutcome = Succeeded | Failed | GaveUp | Crashed | Interrupted
Outcome = Succeeded | Failed | GaveUp | Unrunnable | Stopped | Crashed
