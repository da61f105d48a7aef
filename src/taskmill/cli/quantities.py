"""Parses rates, durations, instants, priorities and numbers as people type them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from taskmill import Priority, RateLimit
from taskmill.cli.refusal import WRONG, Refusal

NONE = "none"
_SECONDS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3_600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
}
_NUMBER = r"(\d{1,12}(?:\.\d{1,6})?)"
_PART = re.compile(rf"{_NUMBER}\s*([a-z]+)\s*", re.ASCII)
_RATE = re.compile(rf"(\d{{1,12}})\s*/\s*(?:{_NUMBER}\s*)?([a-z]+)", re.ASCII)


def rate(text: str, name: str, burst: int | None = None) -> RateLimit | None:
    """Parse ``10/s``, ``100/min``, ``1/30s``; ``none`` is no limit."""
    if text == NONE:
        if burst is not None:
            raise Refusal("--burst needs a rate, and none is given", WRONG)
        return None
    found = _RATE.fullmatch(text.strip().lower())
    if found is None or found[3] not in _SECONDS:
        raise Refusal(f"{name} is written as 10/s, 100/min, 1/30s or none; got {text!r}", WRONG)
    return RateLimit(int(found[1]), float(found[2] or 1) * _SECONDS[found[3]], burst)


def duration(text: str, name: str) -> timedelta:
    """Parse ``90s``, ``10m``, ``1h30m``; a plain number is seconds."""
    given = text.strip().lower()
    if re.fullmatch(_NUMBER, given, re.ASCII):
        return timedelta(seconds=float(given))
    parts = _PART.findall(given)
    if not re.fullmatch(f"(?:{_PART.pattern})+", given, re.ASCII) or any(unit not in _SECONDS for _, unit in parts):
        raise Refusal(f"{name} is written as 90s, 10m, 2h or 1h30m; got {text!r}", WRONG)
    try:
        return timedelta(seconds=sum(float(count) * _SECONDS[unit] for count, unit in parts))
    except OverflowError:
        raise Refusal(f"{name} is too long: {text!r}", WRONG) from None


def instant(text: str, name: str) -> datetime:
    """Parse ISO 8601; without an offset it is local time."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        raise Refusal(
            f"{name} is written as 2030-01-31T18:30, in local time or with an offset; got {text!r}", WRONG
        ) from None


def priority(text: str) -> int:
    """Parse a number from 0 to 255, or the name of a level."""
    given = text.strip()
    if given.isascii() and given.isdigit() and len(given) <= 9:
        return int(given)
    level = Priority.__members__.get(given.upper())
    if level is None:
        names = ", ".join(name.lower() for name in Priority.__members__)
        raise Refusal(f"a priority is a number from 0 (most urgent) to 255, or one of {names}; got {text!r}", WRONG)
    return int(level)


def number(text: str, name: str) -> float:
    """Parse a number; a whole number becomes an int."""
    try:
        return float(text) if "." in text or "e" in text.lower() else int(text)
    except ValueError:
        raise Refusal(f"{name} is a number, got {text!r}", WRONG) from None


def slots(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Refusal(f"{name} is a whole number of slots, got {text!r}", WRONG) from None


def cap(text: str, name: str) -> int | None:
    """Parse a number of slots; ``none`` is no cap."""
    if text == NONE:
        return None
    try:
        return int(text)
    except ValueError:
        raise Refusal(f"{name} is a whole number of slots or none, got {text!r}", WRONG) from None
