"""An attempt at a task: how it ended, and what happens to the task then.

The end of a handler becomes an ``Outcome``. :mod:`taskmill.policy.verdicts` turns that into a ``Verdict``: what the
attempt means by itself. ``Next`` is the state that follows once the row has shown whether the task has children and was
asked to stop. The store writes it under the attempt's token.
"""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from taskmill.model.status import Ending, ErrorKind, Status


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


class ErrorDetails(msgspec.Struct, frozen=True, gc=False):
    """What is known about the exception of an attempt besides its text."""

    exception: str
    """The name of its class."""
    location: str | None = None
    """Where it was raised, such as ``photos.py:31 in resize``: the innermost frame of the program's own code."""
    traceback: str | None = None


class Succeeded(msgspec.Struct, frozen=True, gc=False):
    """The handler returned."""

    result: str


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The handler raised or exceeded its timeout. ``after_ms`` is the delay given to ``RetryLater``, if any."""

    error: str
    after_ms: int | None = None
    details: ErrorDetails | None = None
    timed_out: bool = False


class GaveUp(msgspec.Struct, frozen=True, gc=False):
    """The handler raised ``GiveUp``, or its result cannot be stored."""

    error: str
    details: ErrorDetails | None = None


class Unrunnable(msgspec.Struct, frozen=True, gc=False):
    """The handler could not be called: the stored task does not fit it, or a worker process cannot import it.

    Another attempt would fail as well. The task can be revived once the code is fixed.
    """

    error: str
    details: ErrorDetails | None = None


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
    details: ErrorDetails | None = None
    """Where the handler was when it was cancelled."""


class Unstarted(msgspec.Struct, frozen=True, gc=False):
    """No thread or process could be started for the handler, which is not the task's fault."""

    error: str


RawOutcome = Succeeded | Failed | GaveUp | Unrunnable | Crashed | Interrupted | Unstarted
Outcome = Succeeded | Failed | GaveUp | Unrunnable | Stopped | Crashed | Unstarted


class AttemptFailure(msgspec.Struct, frozen=True, gc=False):
    """The error that an attempt leaves with its verdict."""

    kind: ErrorKind
    error: str
    details: ErrorDetails | None = None


class End(msgspec.Struct, frozen=True, gc=False):
    """The task moves to history."""

    ending: Ending
    result: str | None = None
    error: str | None = None


class TryAgain(msgspec.Struct, frozen=True, gc=False):
    """The task returns to the queue and uses one retry; it is due at ``due_at``, or at once if that is ``None``."""

    error: str
    due_at: int | None


class Return(msgspec.Struct, frozen=True, gc=False):
    """The task returns to the queue without using a retry: it was interrupted, or its process crashed.

    It is due at ``due_at``, or at once if that is ``None``. A task that was ``started`` can no longer expire.
    """

    crashed: bool = False
    error: str | None = None
    due_at: int | None = None
    started: bool = True


class MakeWay(msgspec.Struct, frozen=True, gc=False):
    """The task was preempted: it is paused, without using a retry, until no more urgent task needs its slot.

    With ``for_pressure`` it is paused until the pressure has fallen.
    """

    for_pressure: bool = False


class Wait(msgspec.Struct, frozen=True, gc=False):
    """The attempt is over, and the task waits for its children to end.

    ``result`` is the handler's result; it is ``None`` if the task was asked to stop.
    """

    result: str | None
    finalizes: bool = False


Verdict = End | TryAgain | Return | MakeWay | Wait


FOR_A_TASK, FOR_PRESSURE = 1, 2
"""Why a task was preempted, as stored: for a more urgent task, or because the machine is under pressure."""


class Again(NamedTuple):
    """The task runs again: the columns that are written, in this order."""

    status: Status
    retries: int
    crashes: int
    due_at: int | None = None
    error: str | None = None
    interrupted: bool | None = True
    """None keeps it as it was."""
    preempted: int = 0
    """0, :data:`FOR_A_TASK` or :data:`FOR_PRESSURE`."""


class LeaveToChildren(msgspec.Struct, frozen=True, gc=False):
    """The task waits for its children, and then ends with ``end`` unless its ``finalize`` decides otherwise.

    ``end`` is None if the task was asked to stop, which decides how it ends.
    """

    end: End | None
    finalizes: bool = False


class StopChildren(msgspec.Struct, frozen=True, gc=False):
    """The task ends without success: its children are stopped, and it ends with ``end`` after them."""

    end: End


Next = End | Again | LeaveToChildren | StopChildren
