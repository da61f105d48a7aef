"""Convert the durations, instants and sizes that users write into the integers used inside.

Users write a ``timedelta``, seconds or a text such as ``"1h30m"`` for a duration, an aware ``datetime`` for an instant,
and bytes or a text such as ``"64MB"`` for a size. Inside, durations and instants are integer milliseconds (instants
since the Unix epoch, UTC), so that comparing, storing and adding are exact and independent of time zones. The command
line uses the same parsers.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from itertools import pairwise
from typing import Annotated

import msgspec

from taskmill.errors import ConfigError

Span = timedelta | float
"""A duration as fields hold it and the store reads it. Users may also write a text."""
Duration = Span | str
Size = int | str
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# A little over 292 years. A longer duration is a mistake in units. Sums of such durations still fit in 64 bits.
LONGEST_MS = 2**63 // 10**6
# Users see instants as datetimes, which have this range.
FIRST_INSTANT_MS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
LAST_INSTANT_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
Instant = Annotated[int, msgspec.Meta(ge=FIRST_INSTANT_MS, le=LAST_INSTANT_MS)]
"""A stored instant. In a damaged row it may be out of range."""


def milliseconds(value: object, name: str, error: type[Exception] = ConfigError) -> int:
    """Return a duration in milliseconds, rounded up so that a tiny positive duration never becomes zero.

    Seconds with at most three decimals are converted exactly, although 2.007 * 1000 is 2007.0000000000002.
    """
    if isinstance(value, timedelta):
        exact = value / _MILLISECOND
    elif isinstance(value, int | float) and not isinstance(value, bool):
        # An int may be too large for a float; it is too long anyway.
        exact = math.copysign(math.inf, value > 0 or -1) if _is_vast(value) else value * 1000
    elif isinstance(value, str):
        exact = _text_ms(value, name, error)
    else:
        raise error(f"{name} must be a timedelta, seconds or a text such as '10m', not {type(value).__name__}")
    if math.isnan(exact):
        raise error(f"{name} must not be NaN")
    if exact < 0:
        raise error(f"{name} must not be negative, got {str(value)[:40]}")
    if exact > LONGEST_MS:
        raise error(f"{name} is too long: {str(value)[:40]}; at most 292 years are allowed")
    nearest = round(exact)
    return nearest if nearest and math.isclose(exact, nearest, rel_tol=1e-12) else math.ceil(exact)


_UNITS_MS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_UNITS_BYTES = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgtp", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", 1)},
}
_PART = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-z]+)\s*"
_SHORT = 2
"""Units of at most this many letters must be in lower case: ``5M`` might be minutes, months or megabytes."""


def _text_ms(text: str, name: str, error: type[Exception]) -> float:
    parts = [(count, unit if len(unit) <= _SHORT else unit.lower()) for count, unit in _parts(text)]
    if not parts or any(unit not in _UNITS_MS for _, unit in parts):
        raise error(f"{name} is written as 250ms, 10s, 10m, 1h30m or 2d, got {text[:40]!r}")
    if any(_UNITS_MS[one] <= _UNITS_MS[next_one] for (_, one), (_, next_one) in pairwise(parts)):
        raise error(f"{name} has each unit once, the longest first, such as 1h30m, got {text[:40]!r}")
    return float(sum(Decimal(count) * _UNITS_MS[unit] for count, unit in parts))


def size(value: object, name: str, error: type[Exception] = ConfigError) -> int:
    """Return a size in bytes."""
    if isinstance(value, str):
        parts = _parts(value)
        if len(parts) != 1 or parts[0][1].lower() not in _UNITS_BYTES:
            raise error(f"{name} is written as 500kB, 64MB or 1GiB, got {value[:40]!r}")
        count, unit = parts[0]
        if unit.endswith("b") and not unit.islower():
            raise error(f"{name} is written as 500kB, 64MB or 1GiB, in bytes; a unit such as {unit} is for bits")
        return int((Decimal(count) * _UNITS_BYTES[unit.lower()]).to_integral_value(ROUND_CEILING))
    if isinstance(value, bool) or not isinstance(value, int):
        raise error(f"{name} must be an int, in bytes, or a text such as '64MB', not {type(value).__name__}")
    return int(value)


def _parts(text: str) -> list[tuple[str, str]]:
    """Split a text such as ``1h30m`` into numbers and units; return an empty list if it is written otherwise."""
    given = text.strip()
    parts: list[tuple[str, str]] = re.findall(_PART, given)
    return parts if re.sub(_PART, "", given) == "" else []


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


def whole_seconds(count: int) -> str:
    """Return a duration for people, in its two largest units: ``12 s``, ``1 min 12 s``, ``2 d 3 h``."""
    for unit, name, smaller, smaller_name in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if count >= unit:
            rest = count % unit // smaller
            return f"{count // unit} {name}" + (f" {rest} {smaller_name}" if rest else "")
    return f"{count} s"


def to_ms(at: datetime) -> int:
    return (at - _EPOCH) // _MILLISECOND


def from_ms(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def elapsed(since: datetime, until: datetime) -> timedelta:
    """Return the time between two readings of the wall clock; zero if the clock was set back in between.

    A dispatcher moves the instants of active tasks with a step of the clock. Readings differ if none ran then, if the
    step was too small to notice, or if they are of two machines.
    """
    return max(until - since, timedelta(0))


def optional_from_ms(ms: int | None) -> datetime | None:
    return None if ms is None else from_ms(ms)
