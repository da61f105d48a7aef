"""Deadlines of attempts: timeouts, and how long a handler may ignore a request to stop.

They are on the scheduler's clock, and the dispatcher looks at them; it is woken for one that is earlier than those that
it knew when it fell asleep.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from taskmill.ports import Clock
from taskmill.runtime.attempt import Attempt

Kind = Literal["timeout", "overdue"]


class Deadline(NamedTuple):
    """When an attempt must have ended."""

    at: float
    order: int
    kind: Kind
    attempt: Attempt

    @property
    def is_met(self) -> bool:
        """True if the attempt has ended, or was asked to stop before its timeout."""
        return self.attempt.ended or (self.kind == "timeout" and self.attempt.stop_reason is not None)


class Deadlines:
    """The deadlines that are open, the earliest first."""

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._open: list[Deadline] = []
        self._order = itertools.count()

    def add(self, delay: float, kind: Kind, attempt: Attempt) -> None:
        deadline = Deadline(self._clock.monotonic() + delay, next(self._order), kind, attempt)
        heapq.heappush(self._open, deadline)
        if self._open[0] is deadline:
            self._wake()

    def next_at(self) -> float | None:
        while self._open and self._open[0].is_met:
            heapq.heappop(self._open)
        return self._open[0].at if self._open else None

    def missed(self) -> Iterator[Deadline]:
        """Take out the deadlines that have passed, in order."""
        now = self._clock.monotonic()
        while (at := self.next_at()) is not None and at <= now:
            yield heapq.heappop(self._open)
