"""Progress is written now and then, however often it is reported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from taskmill.runtime.attempt import Attempt

INTERVAL = 0.5

_encode = msgspec.json.Encoder().encode


class ProgressPace:
    """Gathers what handlers have reported: the last word of those that ended, and now and then that of the others."""

    def __init__(self) -> None:
        self.waits = False
        """Whether anything was reported since the running ones were asked."""
        self._asked_at = float("-inf")
        self.gathered: list[Attempt] = []
        """The attempts whose progress was written last."""

    @property
    def next_at(self) -> float:
        """When the running ones are asked again."""
        return self._asked_at + INTERVAL

    def gather(self, now: float, ended: Sequence[Attempt], running: Iterable[Attempt]) -> list[tuple[int, int, str]]:
        """``(id, attempt, progress)`` of those that have something new to say."""
        attempts = [attempt for attempt in ended if attempt.latest is not None]
        if self.waits and now >= self.next_at:
            self.waits = False
            self._asked_at = now
            attempts.extend(running)
        self.gathered = [attempt for attempt in attempts if attempt.take_progress(now)]
        return [
            (attempt.task.id, attempt.task.attempt, _encode(attempt.progress).decode()) for attempt in self.gathered
        ]
