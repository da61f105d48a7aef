"""The text of a cron expression, read strictly as POSIX has it.

Five fields between spaces and tabs. A field is ``*`` alone, or a list of numbers and ascending ranges. All else is
refused with the field and a reason: what another cron would read differently must not run at a guess.

Laws: whatever the text, the outcome is ``Fields`` or ``InvalidCronExpression``; what was read has at least one
minute to run in.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from taskmill.errors import InvalidCronExpression


class Fields(NamedTuple):
    """What each field allows, as bits: bit 30 of ``minutes`` is minute 30, bit 1 of ``days`` the first of the month.

    A day matches by ``days`` or by ``weekdays`` (Sunday is bit 0). Where one of the two fields is ``*`` it has no say
    and its bits are 0; where both are, ``days`` has all.
    """

    minutes: int
    hours: int
    days: int
    months: int
    weekdays: int


class _Kind(NamedTuple):
    name: str
    low: int
    high: int

    @property
    def all(self) -> int:
        return (2 << self.high) - (1 << self.low)


_KINDS = (
    _Kind("minute", 0, 59),
    _Kind("hour", 0, 23),
    _Kind("day", 1, 31),
    _Kind("month", 1, 12),
    _Kind("weekday", 0, 6),
)
_DAY, _WEEKDAY = _KINDS[2], _KINDS[4]
ALL_DAYS = _DAY.all

# ASCII said aloud: \d and int() take the digits of every script, and int() signs and underscores too.
_ITEM = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_BLANKS = re.compile(r"[ \t]+")
_LONGEST_SHOWN = 20
_LONGEST_MONTH = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
# Looked for in this order, so that the reason names what the writer had in mind.
_STRANGERS = (
    (re.compile(r"\s"), "only spaces and tabs separate fields"),
    (re.compile(r"[^\x21-\x7e]"), "digits are those of ASCII"),
    (re.compile(r"/"), "steps are not POSIX: list the numbers"),
    (re.compile(r"[?#]|^[0-9]*[LW]$"), "'?', 'L', 'W' and '#' are not POSIX"),
    (re.compile(r"[A-Za-z]"), "names are not POSIX: use numbers"),
    (re.compile(r"[+]|^-|,-|--"), "numbers have no sign"),
    (re.compile(r"\*"), "'*' must stand alone in its field"),
    (re.compile(r"^,|,,|,$"), "a list has nothing between two commas, or at an end"),
)


def parsed(text: object) -> Fields:
    """What ``text`` means, or ``InvalidCronExpression``."""
    if not isinstance(text, str):
        raise InvalidCronExpression(text, "expression", f"must be text, not {type(text).__name__}")
    given = _BLANKS.split(text.strip(" \t"))
    if len(given) != len(_KINDS):
        raise InvalidCronExpression(text, "expression", _miscounted(given))
    minutes, hours, days, months, weekdays = (
        _bits(kind, field, text) for kind, field in zip(_KINDS, given, strict=True)
    )
    any_day, any_weekday = given[2] == "*", given[4] == "*"
    if any_weekday and not _has_a_day(days, months):
        raise InvalidCronExpression(text, "expression", "never matches: none of its months has such a day")
    return Fields(
        minutes,
        hours,
        0 if any_day and not any_weekday else days,
        months,
        0 if any_weekday else weekdays,
    )


def _miscounted(given: list[str]) -> str:
    if given == [""]:
        return "is empty: five fields are needed, minute hour day month weekday"
    if given[0].startswith("@"):
        return "macros are not POSIX: write the five fields, minute hour day month weekday"
    return f"has {len(given)} field{'' if len(given) == 1 else 's'}, not the five minute hour day month weekday"


def _bits(kind: _Kind, field: str, text: str) -> int:
    if field == "*":
        return kind.all
    bits = 0
    for item in field.split(","):
        read = _ITEM.fullmatch(item)
        if read is None:
            raise InvalidCronExpression(text, kind.name, _strange(field, item))
        first = _number(kind, read[1], text)
        last = first if read[2] is None else _number(kind, read[2], text)
        if first > last:
            raise InvalidCronExpression(text, kind.name, f"range {_shown(item)} goes backwards: split it in two")
        bits |= (2 << last) - (1 << first)
    return bits


def _number(kind: _Kind, digits: str, text: str) -> int:
    significant = digits.lstrip("0") or "0"
    # Compared by length first: a number of a million digits is wrong, not slow.
    number = int(significant) if len(significant) <= 2 else None
    if number is None or not kind.low <= number <= kind.high:
        hint = ": Sunday is 0" if kind is _WEEKDAY and number == 7 else ""
        raise InvalidCronExpression(text, kind.name, f"{_shown(digits)} is not from {kind.low} to {kind.high}{hint}")
    return number


def _strange(field: str, item: str) -> str:
    for pattern, reason in _STRANGERS:
        if pattern.search(field):
            return f"{_shown(field)} is not understood: {reason}"
    return f"{_shown(item)} is not understood: a number or a range such as 1-5 is"


def _shown(part: str) -> str:
    return repr(part if len(part) <= _LONGEST_SHOWN else part[:_LONGEST_SHOWN] + "…")


def _has_a_day(days: int, months: int) -> bool:
    """Whether one of the months is ever long enough for the first of the days."""
    first = (days & -days).bit_length() - 1
    return any(months >> month & 1 and first <= _LONGEST_MONTH.get(month, 31) for month in range(1, 13))
