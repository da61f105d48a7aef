"""An attempt at a task: its progress, how it ended, and what happens to the task then.

A handler reports progress and raises ``RetryLater`` or ``GiveUp`` to control retries. Its end becomes an ``Outcome``.
:mod:`taskmill.policy.verdicts` turns that into a ``Verdict``: what the attempt means by itself. ``Next`` is the state
that follows once the row has shown whether the task has children and was asked to stop. The store writes it under the
attempt's token.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

import msgspec

from taskmill.model.durations import Duration, optional_milliseconds
from taskmill.model.status import Ending, Status


class ProgressReport(msgspec.Struct, frozen=True, gc=False):
    """One report of a handler."""

    fraction: float | None = None
    message: str | None = None
    done_bytes: int | None = None
    total_bytes: int | None = None


class StoredProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Progress as it is written to the store."""

    fraction: float | None = None
    message: str | None = None
    done_bytes: int | None = None
    total_bytes: int | None = None
    rate: float | None = None
    eta_ms: int | None = None


class TaskProgress(msgspec.Struct, frozen=True):
    """The progress of a task. ``rate`` is in bytes per second, ``eta`` is the remaining time at that rate."""

    fraction: float | None = None
    message: str | None = None
    done_bytes: int | None = None
    total_bytes: int | None = None
    rate: float | None = None
    eta: timedelta | None = None


def readable_progress(stored: StoredProgress) -> TaskProgress:
    return TaskProgress(
        fraction=stored.fraction,
        message=stored.message,
        done_bytes=stored.done_bytes,
        total_bytes=stored.total_bytes,
        rate=stored.rate,
        eta=None if stored.eta_ms is None else timedelta(milliseconds=stored.eta_ms),
    )


class RetryLater(Exception):
    """Fail this attempt and retry: after ``after`` if given, else by the policy."""

    def __init__(self, message: str = "", after: Duration | None = None) -> None:
        super().__init__(message)
        self.after = after
        self.after_ms = optional_milliseconds(after, "after")


class GiveUp(Exception):
    """End the task as failed, without a retry."""


LONGEST_MESSAGE = 10_000


def message_of(wrong: BaseException) -> str:
    """Return the message of an exception, whatever its ``__str__`` does."""
    try:
        # __str__ may return a subclass of str with its own behaviour; joining makes a plain str.
        said = "".join(list(str(wrong)))
    except BaseException as broken:  # noqa: BLE001 - __str__ is user code, and must not break the caller
        said = f"(its message could not be read: {type(broken).__name__})"
    printable = said.encode("utf-8", "replace").decode().replace("\0", "\\0")
    return printable if len(printable) <= LONGEST_MESSAGE else printable[:LONGEST_MESSAGE] + "…"


def exception_text(wrong: BaseException) -> str:
    """Return the type and message, such as ``ValueError: message``."""
    said = message_of(wrong)
    return f"{type(wrong).__name__}: {said}" if said else type(wrong).__name__


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
    """The handler could not be called: the stored task does not fit it, or a worker process cannot import it.

    Another attempt would fail as well. The task can be revived once the code is fixed.
    """

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


RawOutcome = Succeeded | Failed | GaveUp | Unrunnable | Crashed | Interrupted | Unstarted
Outcome = Succeeded | Failed | GaveUp | Unrunnable | Stopped | Crashed | Unstarted


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
