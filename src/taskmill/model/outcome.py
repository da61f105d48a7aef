"""How an attempt ended, as the runtime saw it. :mod:`taskmill.policy.verdicts` says what follows from it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class StopReason(StrEnum):
    """Why an attempt was asked to stop before its handler returned."""

    CANCEL = "cancel"
    SUPERSEDE = "supersede"
    FAIL = "fail"
    """A child has failed, and with it the task."""
    TIMEOUT = "timeout"
    SHUTDOWN = "shutdown"
    PREEMPT = "preempt"
    """A more urgent task needs the slot."""
    EASE = "ease"
    """The machine is under pressure."""
    CUT_OFF = "cut_off"
    """This node cannot prove that it is alive: others may run its tasks."""
    OUTSIDE = "outside"
    """Something else than the scheduler has cancelled the handler, such as the end of its event loop."""

    @property
    def ends_task(self) -> bool:
        """Whether the task itself is over, whatever its handler says."""
        return self in (StopReason.CANCEL, StopReason.SUPERSEDE, StopReason.FAIL)


class Succeeded(msgspec.Struct, frozen=True, gc=False):
    """The handler returned."""

    result: str


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The handler raised, or exceeded its timeout. ``after_ms`` is what ``RetryLater`` asked for."""

    error: str
    after_ms: int | None = None


class GaveUp(msgspec.Struct, frozen=True, gc=False):
    """The handler said that it cannot succeed."""

    error: str


class Unrunnable(msgspec.Struct, frozen=True, gc=False):
    """The handler could not be called: the stored task does not fit it. Mended code can revive the task."""

    error: str


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """The attempt ended because it was asked to, for a reason that is not a failure."""

    reason: StopReason
    note: str | None = None


class Crashed(msgspec.Struct, frozen=True, gc=False):
    """The process that ran the handler died under it."""

    error: str


class Interrupted(msgspec.Struct, frozen=True, gc=False):
    """The handler let its cancellation through; the attempt knows why it was cancelled, if it was."""

    from_outside: bool = False
    """True if something else than the scheduler cancelled it; otherwise it may have cancelled itself."""


class Unstarted(msgspec.Struct, frozen=True, gc=False):
    """There was nothing to run the handler in, and nothing is wrong with the task."""

    error: str


RawOutcome = Succeeded | Failed | GaveUp | Crashed | Interrupted | Unstarted
Outcome = Succeeded | Failed | GaveUp | Unrunnable | Stopped | Crashed | Unstarted
