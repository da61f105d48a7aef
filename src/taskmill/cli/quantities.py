"""Parses rates, durations, instants, priorities and numbers as people type them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from taskmill import ConfigError, Priority, RateLimit
from taskmill.cli.output import WRONG, Refusal
from taskmill.model.durations import milliseconds

NONE = "none"
_NUMBER = r"(\d{1,12}(?:\.\d{1,6})?)"
_DATE = re.compile(r"\d{4}-", re.ASCII)
_RATE = re.compile(r"(\d{1,12})\s*/\s*(.+)", re.ASCII)


def rate(text: str, name: str, burst: int | None = None) -> RateLimit | None:
    """Parse ``10/s``, ``100/min``, ``1/30s``, ``1/1h30m``; ``none`` is no limit."""
    if text == NONE:
        if burst is not None:
            raise Refusal("--burst needs a rate, and none is given", WRONG)
        return None
    found = _RATE.fullmatch(text.strip())
    interval = "" if found is None else f"1{found[2]}" if found[2][0].isalpha() else found[2]
    try:
        milliseconds(interval, name)
    except ConfigError:
        raise Refusal(f"{name} is written as 10/s, 100/min, 1/30s, 1/1h30m or none; got {text!r}", WRONG) from None
    return RateLimit(int(found[1] if found else 0), interval, burst)


def duration(text: str, name: str) -> timedelta:
    """Parse ``90s``, ``10m``, ``1h30m``; a plain number is seconds."""
    given = f"{text.strip()}s" if re.fullmatch(_NUMBER, text.strip(), re.ASCII) else text
    try:
        return timedelta(milliseconds=milliseconds(given, name))
    except ConfigError as wrong:
        raise Refusal(str(wrong), WRONG) from None


def instant(text: str, name: str) -> datetime:
    """Parse ISO 8601; without an offset it is local time."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        raise Refusal(
            f"{name} is written as 2030-01-31T18:30, in local time or with an offset; got {text!r}", WRONG
        ) from None


def moment(text: str, name: str, now: datetime) -> datetime:
    """Parse an instant of the past: a duration back from now, or ISO 8601."""
    if _DATE.match(text.strip()):
        return instant(text, name)
    try:
        return now - duration(text, name)
    except Refusal:
        raise Refusal(f"{name} is written as 90s, 2h or 30d ago, or as 2030-01-31T18:30; got {text!r}", WRONG) from None
    except OverflowError:
        raise Refusal(f"{name} is too long ago: {text}", WRONG) from None


def priority(text: str) -> int:
    """Parse a number from 0 to 255, or the name of a level."""
    given = text.strip()
    if given.isascii() and given.isdigit() and len(given) <= 3 and int(given) <= Priority.IDLE:
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
