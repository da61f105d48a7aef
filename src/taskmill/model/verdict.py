"""What happens to a task after an attempt: the value that the store commits under the attempt's token."""

from __future__ import annotations

import msgspec

from taskmill.model.status import Ending


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
