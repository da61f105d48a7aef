"""Convert the durations and instants of users to the integer milliseconds used inside.

Users write ``timedelta`` or seconds for a duration and an aware ``datetime`` for an instant. Inside, both are integer
milliseconds (instants since the Unix epoch, UTC), so that comparing, storing and adding are exact and independent of
time zones.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

from taskmill.errors import ConfigError

Duration = timedelta | float
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# A little over 292 years: a longer duration is a mistake in units, and sums of these still fit in 64 bits.
LONGEST_MS = 2**63 // 10**6
# Users see instants as datetimes, which have this range.
FIRST_INSTANT_MS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
LAST_INSTANT_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
Instant = Annotated[int, msgspec.Meta(ge=FIRST_INSTANT_MS, le=LAST_INSTANT_MS)]
"""A stored instant. In a damaged row it may be out of range."""


def milliseconds(value: object, name: str, error: type[Exception] = ConfigError) -> int:
    """Return a duration in milliseconds, rounded up so that a tiny positive duration never becomes zero."""
    if isinstance(value, timedelta):
        exact = value / _MILLISECOND
    elif isinstance(value, int | float) and not isinstance(value, bool):
        # An int may be too large for a float; it is too long anyway.
        exact = math.copysign(math.inf, value > 0 or -1) if _is_vast(value) else value * 1000
    else:
        raise error(f"{name} must be a timedelta or seconds, not {type(value).__name__}")
    if math.isnan(exact):
        raise error(f"{name} must not be NaN")
    if exact < 0:
        raise error(f"{name} must not be negative, got {str(value)[:40]}")
    if exact > LONGEST_MS:
        raise error(f"{name} is too long: {str(value)[:40]}")
    return math.ceil(exact)


def _is_vast(value: float) -> bool:
    return isinstance(value, int) and abs(value) > LONGEST_MS


def optional_milliseconds(value: object, name: str, error: type[Exception] = ConfigError) -> int | None:
    return None if value is None else milliseconds(value, name, error)


def instant(value: object, name: str, error: type[Exception] = ConfigError) -> int:
    """Return an aware datetime as milliseconds since the epoch."""
    if not isinstance(value, datetime):
        raise error(f"{name} must be an aware datetime, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise error(f"{name} must be an aware datetime; {value!r} has no timezone")
    ms = to_ms(value)
    if not FIRST_INSTANT_MS <= ms <= LAST_INSTANT_MS:
        raise error(f"{name} lies outside the years 1 to 9999 of UTC: {value}")
    return ms


def to_ms(at: datetime) -> int:
    return (at - _EPOCH) // _MILLISECOND


def from_ms(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def optional_from_ms(ms: int | None) -> datetime | None:
    return None if ms is None else from_ms(ms)
