"""Rate limits as values; :mod:`taskmill.policy.rates` applies them."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from taskmill.errors import ConfigError
from taskmill.model.arguments import SettingsMeta, check_arguments
from taskmill.model.durations import Duration, milliseconds

MOST_PERMITS = 1_000_000
"""The largest number of permits. A full bucket still fits in 64 bits, whatever the interval."""


class RateLimit(msgspec.Struct, frozen=True, omit_defaults=True, metaclass=SettingsMeta):
    """At most ``permits`` starts per ``interval``, spread evenly, after a first burst of at most ``burst``.

    It is a token bucket that starts full. ``burst`` defaults to ``permits``; a burst of 1 spaces all starts evenly.
    """

    permits: int
    interval: Duration
    burst: int | None = None

    def __post_init__(self) -> None:
        _check_count(self.permits, "permits", "; for less than one per interval make the interval longer")
        if self.burst is not None:
            _check_count(self.burst, "burst")
        ms = milliseconds(self.interval, "interval")
        if ms == 0:
            raise ConfigError("interval must be longer than zero")
        # Normalized, so that equal limits compare equal, however they were written, stored or read.
        msgspec.structs.force_setattr(self, "interval", timedelta(milliseconds=ms))

    @classmethod
    @check_arguments
    def per_second(cls, n: int, burst: int | None = None) -> RateLimit:
        """Return a limit of ``n`` starts per second."""
        _check_count(n, "n", "; for less than one per second use per_minute or RateLimit(1, interval)")
        return cls(n, 1, burst)

    @classmethod
    @check_arguments
    def per_minute(cls, n: int, burst: int | None = None) -> RateLimit:
        """Return a limit of ``n`` starts per minute."""
        _check_count(n, "n", "; for less than one per minute use RateLimit(1, interval)")
        return cls(n, 60, burst)

    @property
    def interval_ms(self) -> int:
        return milliseconds(self.interval, "interval")

    @property
    def capacity(self) -> int:
        """The number of permits in a full bucket."""
        return self.permits if self.burst is None else self.burst


def _check_count(count: object, name: str, advice: str = "") -> None:
    if isinstance(count, bool) or not isinstance(count, int):
        raise ConfigError(f"{name} must be an int, not {type(count).__name__}{advice}")
    if not 1 <= count <= MOST_PERMITS:
        raise ConfigError(f"{name} must be from 1 to {MOST_PERMITS:,}, got {str(count)[:40]}{advice}")
