"""What becomes of a task after an attempt: the value that the store commits under the attempt's token."""

from __future__ import annotations

import msgspec

from taskmill.model.status import Ending


class End(msgspec.Struct, frozen=True, gc=False):
    """The task moves to history."""

    ending: Ending
    result: str | None = None
    error: str | None = None


class TryAgain(msgspec.Struct, frozen=True, gc=False):
    """The task returns to the waiting room at the price of one retry; ``due_at`` of ``None`` is at once."""

    error: str
    due_at: int | None


class Return(msgspec.Struct, frozen=True, gc=False):
    """The task returns to the waiting room without using a retry: it was interrupted, or its process crashed.

    ``due_at`` of ``None`` is at once. A task that was ``started`` has met its time-to-live.
    """

    crashed: bool = False
    error: str | None = None
    due_at: int | None = None
    started: bool = True


class MakeWay(msgspec.Struct, frozen=True, gc=False):
    """The task is paused, without cost, until no more urgent one needs its slot, or the pressure has fallen."""

    for_pressure: bool = False


class Wait(msgspec.Struct, frozen=True, gc=False):
    """The attempt is over; what the task does next waits for its children to end.

    ``result`` is what the handler returned; without one, the task was asked to stop.
    """

    result: str | None
    finalizes: bool = False


Verdict = End | TryAgain | Return | MakeWay | Wait
