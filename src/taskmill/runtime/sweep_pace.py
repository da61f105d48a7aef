"""How much of the loop's time a sweep of expired tasks takes.

What has expired is never claimed, so nothing is wrong while it waits for its ending. A turn that has other work
therefore sweeps only now and then, though not less often than asked for; one that has none sweeps at once, and no sweep
ever waits for a timer.
"""

from __future__ import annotations

from taskmill.ports import Clock

REST = 5.0
"""A sweep leaves other work this many times the time that its last bite took."""


class SweepPace:
    """Remembers how long the last bite took. What has expired is put off for ``longest`` seconds at the most."""

    def __init__(self, clock: Clock, longest: float) -> None:
        self._clock = clock
        self._longest = longest
        self._began = 0.0
        self._rests_until = float("-inf")

    @property
    def rests(self) -> bool:
        """Whether it is the turn of other work, if there is any."""
        return self._clock.monotonic() < self._rests_until

    def begins(self) -> None:
        self._began = self._clock.monotonic()

    def ended(self) -> None:
        now = self._clock.monotonic()
        self._rests_until = now + min(REST * (now - self._began), self._longest)
