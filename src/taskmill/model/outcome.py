"""How an attempt ended. :mod:`taskmill.policy.verdicts` decides what happens to its task."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class StopReason(StrEnum):
    """Why an attempt was asked to stop before its handler returned."""

    CANCEL = "cancel"
    SUPERSEDE = "supersede"
    FAIL = "fail"
    """A child has failed, which fails the task."""
    TIMEOUT = "timeout"
    SHUTDOWN = "shutdown"
    PREEMPT = "preempt"
    """A more urgent task needs the slot."""
    EASE = "ease"
    """The machine is under pressure."""
    CUT_OFF = "cut_off"
    """This node could not renew its lease, so other nodes may run its tasks."""
    OUTSIDE = "outside"
    """Something other than the scheduler cancelled the handler, such as the end of its event loop."""

    @property
    def ends_task(self) -> bool:
        """True if the task itself ends, whatever its handler returns."""
        return self in (StopReason.CANCEL, StopReason.SUPERSEDE, StopReason.FAIL)


class Succeeded(msgspec.Struct, frozen=True, gc=False):
    """The handler returned."""

    result: str


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The handler raised or exceeded its timeout. ``after_ms`` is the delay given to ``RetryLater``, if any."""

    error: str
    after_ms: int | None = None


class GaveUp(msgspec.Struct, frozen=True, gc=False):
    """The handler raised ``GiveUp``, or its result cannot be stored."""

    error: str


class Unrunnable(msgspec.Struct, frozen=True, gc=False):
    """The handler could not be called, because the stored task does not fit it. Fixed code can revive the task."""

    error: str


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """The attempt ended because it was asked to stop, for a reason that is not a failure."""

    reason: StopReason
    note: str | None = None
    awaits_children: bool = False
    """True if the task ends after its children, and its ``on_cancel`` hook runs then."""


class Crashed(msgspec.Struct, frozen=True, gc=False):
    """The process that ran the handler died."""

    error: str


class Interrupted(msgspec.Struct, frozen=True, gc=False):
    """The handler ended with ``CancelledError``. The attempt knows why, if the scheduler cancelled it."""

    from_outside: bool = False
    """True if something other than the scheduler cancelled it; if false, it may have cancelled itself."""


class Unstarted(msgspec.Struct, frozen=True, gc=False):
    """No thread or process could be started for the handler, which is not the task's fault."""

    error: str


RawOutcome = Succeeded | Failed | GaveUp | Crashed | Interrupted | Unstarted
Outcome = Succeeded | Failed | GaveUp | Unrunnable | Stopped | Crashed | Unstarted
