"""Clocks for tests of a store: the time that passes between a request and its transaction is always the same."""

from __future__ import annotations

from taskmill.core.clock import SystemClock


class StillClock(SystemClock):
    """A clock on which no time passes, so that a request is stored with exactly the time that it was given."""

    def monotonic(self) -> float:
        return 0.0


class HurriedClock(SystemClock):
    """A clock on which five seconds pass between two looks at it."""

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0

    def monotonic(self) -> float:
        self._seconds += 5
        return self._seconds
