"""What happens to a task after an attempt.

A ``Verdict`` is what the attempt means by itself. ``Next`` is the state that follows once the row has shown whether the
task has children and was asked to stop. The store writes it under the attempt's token.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from taskmill.model.status import Ending, Status

FOR_A_TASK, FOR_PRESSURE = 1, 2
"""Why a task was preempted, as stored: for a more urgent task, or because the machine is under pressure."""


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
