"""``CronExpression``: a schedule of five fields, and its description in English.

Law: expressions with the same description match the same minutes. Expressions that match the same minutes may have
different descriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from taskmill.errors import ConfigError
from taskmill.model.durations import instant
from taskmill.policy.cron.instants import first_after, last_at
from taskmill.policy.cron.matching import allows
from taskmill.policy.cron.syntax import ALL_DAYS, Fields, parsed


class CronExpression(msgspec.Struct, frozen=True):
    """A schedule in strict POSIX syntax: minute, hour, day of the month, month, weekday.

    Instants are aware datetimes, and results are in the zone of the argument. A minute that daylight saving time skips
    does not occur; one that it repeats occurs twice.
    """

    text: str
    """The expression as written, blanks included."""
    fields: Fields

    @classmethod
    def parse(cls, text: str) -> CronExpression:
        """Parse an expression; raise ``InvalidCronExpression`` if it is not POSIX or can never match."""
        return cls(text, parsed(text))

    def next(self, after: datetime) -> datetime:
        """Return the first occurrence that is strictly later than ``after``."""
        instant(after, "after")
        found = first_after(self.fields, after)
        if found is None:
            raise ConfigError(f"after: {self.text!r} has no occurrence between {after} and the year 10000")
        return found

    def previous(self, at: datetime) -> datetime:
        """Return the last occurrence that is not later than ``at``."""
        instant(at, "at")
        found = last_at(self.fields, at)
        if found is None:
            raise ConfigError(f"at: {self.text!r} has no occurrence between the year 1 and {at}")
        return found

    def matches(self, at: datetime) -> bool:
        """True if the minute that contains ``at`` matches."""
        instant(at, "at")
        # Going through UTC turns a wall time that the zone skips into the instant it denotes.
        return allows(self.fields, at.astimezone(UTC).astimezone(at.tzinfo))

    def in_words(self) -> str:
        """Return the schedule in English, such as ``at 02:30 on Monday to Friday``."""
        return in_words(self.fields)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"CronExpression.parse({self.text!r})"


_ALL_HOURS = (1 << 24) - 1
_ALL_MONTHS = (1 << 13) - 2
_ALL_WEEKDAYS = (1 << 7) - 1
_MOST_CLOCK_TIMES = 6
_ORDINALS = {2: "nd", 3: "rd"}
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    *("", "January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def in_words(fields: Fields) -> str:
    """Return text such as ``at 02:30 on Monday to Friday`` or ``every 15 minutes in January``."""
    days = _days(fields.days, fields.weekdays) or ("" if fields.hours == _ALL_HOURS else "every day")
    said = [_times(fields.minutes, fields.hours), days, _months(fields.months)]
    return " ".join(part for part in said if part)


def _times(minutes: int, hours: int) -> str:
    listed_minutes, listed_hours = _listed(minutes), _listed(hours)
    if len(listed_minutes) * len(listed_hours) <= _MOST_CLOCK_TIMES:
        return "at " + _joined([_clock(hour, minute) for hour in listed_hours for minute in listed_minutes])
    step = _step(listed_minutes, 60)
    if step is not None:
        often = "every minute" if step == 1 else f"every {step} minutes"
        return often if hours == _ALL_HOURS else f"{often} {_while(listed_hours)}"
    said = f"at {_named(listed_minutes, 'minute', 'minutes')} of "
    step = _step(listed_hours, 24)
    if step is None:
        return said + _named(listed_hours, "hour", "hours")
    return said + ("every hour" if step == 1 else f"every {step}{_ORDINALS.get(step, 'th')} hour")


def _step(listed: Sequence[int], size: int) -> int | None:
    """Return the step if the numbers divide ``size`` evenly, starting at 0; otherwise ``None``."""
    step = size // len(listed)
    return step if step < size and list(listed) == list(range(0, size, step)) else None


def _while(hours: Sequence[int]) -> str:
    return _joined([f"from {_clock(first, 0)} to {_clock(last, 59)}" for first, last in _runs(hours)])


def _days(days: int, weekdays: int) -> str:
    if days == ALL_DAYS or weekdays == _ALL_WEEKDAYS:
        return ""
    said: list[str] = []
    if days:
        said.append(f"on {_named(_listed(days), 'day', 'days')} of the month")
    if weekdays:
        # Start on Monday, so that Saturday and Sunday stand together.
        listed = sorted(_listed(weekdays), key=lambda day: (day - 1) % 7)
        said.append("on " + _spans([(day - 1) % 7 for day in listed], lambda day: _WEEKDAYS[(day + 1) % 7]))
    return " or ".join(said)


def _months(months: int) -> str:
    if months == _ALL_MONTHS:
        return ""
    return "in " + _spans(_listed(months), _MONTHS.__getitem__)


def _named(numbers: Sequence[int], one: str, many: str) -> str:
    return f"{one if len(numbers) == 1 else many} {_spans(numbers, str)}"


def _spans(numbers: Sequence[int], name: Callable[[int], str]) -> str:
    """Turn ``1 2 3 5 6`` into ``1 to 3, 5 and 6``; two consecutive numbers are not written as a range."""
    parts: list[str] = []
    for first, last in _runs(numbers):
        if last - first > 1:
            parts.append(f"{name(first)} to {name(last)}")
        else:
            parts += [name(number) for number in range(first, last + 1)]
    return _joined(parts)


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return runs of consecutive numbers, as first and last."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _listed(bits: int) -> list[int]:
    return [number for number in range(bits.bit_length()) if bits >> number & 1]


def _clock(hour: int, minute: int) -> str:
    return f"{hour:02}:{minute:02}"
