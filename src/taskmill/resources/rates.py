"""Turn counters that only grow into rates."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

Counts = Mapping[str, tuple[float, ...]]
"""The counters of each device."""

SHORTEST = 0.05
"""Seconds. Over a shorter span a rate is mostly noise, so the previous rates are returned again."""


class DeviceRates:
    """The rates of several devices since the previous call, each device with a row of counters.

    A rate needs a span of time, so a first call right after construction sleeps for up to :data:`SHORTEST`. A new
    device has a rate from the second call on. A device whose counters went back is left out once.
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
        """Return the rates per second, by device."""
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
    """Return the sums over all devices."""
    return tuple(sum(row[index] for row in rates.values()) for index in range(width))
