"""Counters that only grow, as rates."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

Counts = Mapping[str, tuple[float, ...]]
"""What each device has counted."""

SHORTEST = 0.05
"""Seconds. Over less, a rate is mostly chance, and the one before is given again."""


class Counters:
    """The rates of several devices, each a row of counters, since they were asked for before.

    Rates need a span of time: whoever asks right after they were made waits for a moment, once. A device that was not
    there before counts from now on; one that counts from zero again, or less than before, is left out once.
    """

    def __init__(
        self,
        read: Callable[[], Counts],
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read = read
        self._monotonic = monotonic
        self._sleep = sleep
        self._at = monotonic()
        self._counts = read()
        self._rates: Counts | None = None

    def rates(self) -> Counts:
        """Per second and device."""
        now = self._monotonic()
        if now - self._at < SHORTEST:
            if self._rates is not None:
                return self._rates
            self._sleep(SHORTEST - (now - self._at))
            now = max(self._monotonic(), self._at + SHORTEST)
        elapsed = now - self._at
        counts = self._read()
        grown = {name: _difference(self._counts.get(name), row) for name, row in counts.items()}
        self._rates = {name: tuple(count / elapsed for count in row) for name, row in grown.items() if row is not None}
        self._at, self._counts = now, counts
        return self._rates


def _difference(before: tuple[float, ...] | None, now: tuple[float, ...]) -> tuple[float, ...] | None:
    if before is None or len(before) != len(now):
        return None
    grown = tuple(b - a for a, b in zip(before, now, strict=True))
    return grown if min(grown, default=0) >= 0 else None


def total(rates: Counts, width: int) -> tuple[float, ...]:
    """All devices together."""
    return tuple(sum(row[index] for row in rates.values()) for index in range(width))
