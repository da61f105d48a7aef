"""Parse cron expressions, in strict POSIX syntax.

An expression has five fields separated by spaces and tabs. A field is ``*`` alone, or a list of numbers and ascending
ranges. Everything else is refused with the field and a reason, because other cron programs may read it differently.

Laws: for any text the result is ``Fields`` or ``InvalidCronExpression``; a parsed expression matches at least one
minute.
"""

import re
from typing import NamedTuple

from taskmill.errors import InvalidCronExpression


class Fields(NamedTuple):
    """The values that each field allows, as bits: bit 30 of ``minutes`` is minute 30, bit 1 of ``days`` is day 1.

    A day matches by ``days`` or by ``weekdays`` (Sunday is bit 0). If one of the two fields is ``*``, its bits are 0,
    so that only the other counts; if both are, ``days`` has all bits.
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

# Explicit ASCII: \d and int() accept the digits of every script, and int() also signs and underscores.
_ITEM = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_STEP = re.compile(r"(?:\*|([0-9]{1,2})-([0-9]{1,2}))/([1-9][0-9]?)")
_BLANKS = re.compile(r"[ \t]+")
_LONGEST_SHOWN = 20
_LONGEST_MONTH = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
# Tried in this order, so that the reason names the likely intention.
_STRANGERS = (
    (re.compile(r"\s"), "only spaces and tabs separate fields"),
    (re.compile(r"[^\x21-\x7e]"), "only ASCII digits are allowed"),
    (re.compile(r"/"), "steps are not POSIX: list the numbers"),
    (re.compile(r"[?#]|^[0-9]*[LW]$"), "'?', 'L', 'W' and '#' are not POSIX"),
    (re.compile(r"[A-Za-z]"), "names are not POSIX: use numbers"),
    (re.compile(r"[+]|^-|,-|--"), "numbers have no sign"),
    (re.compile(r"\*"), "'*' must stand alone in its field"),
    (re.compile(r"^,|,,|,$"), "a list item is missing between two commas or at an end"),
)


def parsed(text: object) -> Fields:
    """Parse ``text``, or raise ``InvalidCronExpression``."""
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
        raise InvalidCronExpression(text, "expression", "never matches: none of its months has any of its days")
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
            raise InvalidCronExpression(text, kind.name, _strange(kind, field, item))
        first = _number(kind, read[1], text)
        last = first if read[2] is None else _number(kind, read[2], text)
        if first > last:
            raise InvalidCronExpression(text, kind.name, f"range {_shown(item)} goes backwards: split it in two")
        bits |= (2 << last) - (1 << first)
    return bits


def _number(kind: _Kind, digits: str, text: str) -> int:
    significant = digits.lstrip("0") or "0"
    # Check the length first, so that a number of a million digits is refused quickly.
    number = int(significant) if len(significant) <= 2 else None
    if number is None or not kind.low <= number <= kind.high:
        hint = ": Sunday is 0" if kind is _WEEKDAY and number == 7 else ""
        raise InvalidCronExpression(text, kind.name, f"{_shown(digits)} is not from {kind.low} to {kind.high}{hint}")
    return number


def _strange(kind: _Kind, field: str, item: str) -> str:
    for pattern, reason in _STRANGERS:
        if pattern.search(field):
            return f"{_shown(field)} is not understood: {reason}{_listed(kind, field)}"
    return f"{_shown(item)} is not understood: write a number or a range such as 1-5"


def _listed(kind: _Kind, field: str) -> str:
    """Return the list that a step such as ``*/5`` or ``8-18/2`` stands for; nothing if it is no such step."""
    read = _STEP.fullmatch(field)
    if read is None:
        return ""
    first, last = (kind.low, kind.high) if read[1] is None else (int(read[1]), int(read[2]))
    if not kind.low <= first <= last <= kind.high:
        return ""
    return f", {','.join(map(str, range(first, last + 1, int(read[3]))))}"


def _shown(part: str) -> str:
    return repr(part if len(part) <= _LONGEST_SHOWN else part[:_LONGEST_SHOWN] + "…")


def _has_a_day(days: int, months: int) -> bool:
    """True if one of the months can be long enough for the first of the days."""
    first = (days & -days).bit_length() - 1
    return any(months >> month & 1 and first <= _LONGEST_MONTH.get(month, 31) for month in range(1, 13))
