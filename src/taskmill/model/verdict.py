"""What becomes of a task after an attempt: the value that the store commits under the attempt's token."""

from __future__ import annotations

from dataclasses import dataclass

from taskmill.model.status import Ending


@dataclass(frozen=True, slots=True)
class End:
    """The task moves to history."""

    ending: Ending
    result: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TryAgain:
    """The task returns to the waiting room at the price of one retry; ``due_at`` of ``None`` is at once."""

    error: str
    due_at: int | None


@dataclass(frozen=True, slots=True)
class Return:
    """The task returns to the waiting room without cost: it was interrupted, or its process crashed."""

    crashed: bool = False
    error: str | None = None


Verdict = End | TryAgain | Return
