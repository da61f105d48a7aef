"""Find matching minutes on the calendar, where every day has 24 hours; ``instants`` applies the time zone.

The search jumps to the next set bit of each field. It visits each month once and never single minutes. The longest
search is for a 29th of February across the year 2100: eight Februaries.
"""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, date, datetime

from taskmill.policy.cron.syntax import Fields

_WEEKS = sum(1 << 7 * week for week in range(5))
_FEBRUARY = 2
_LENGTHS = (0, 31, 0, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def allows(fields: Fields, wall: datetime) -> bool:
    """True if the minute of ``wall`` matches."""
    return bool(fields.minutes >> wall.minute & 1 and fields.hours >> wall.hour & 1 and _allows_day(fields, wall))


def first_from(fields: Fields, wall: datetime) -> datetime | None:
    """Return the first matching minute that is not before the minute of ``wall``; ``None`` past the last year."""
    year, month, day, hour = wall.year, wall.month, wall.day, wall.hour
    if _allows_day(fields, wall):
        if fields.hours >> hour & 1:
            later = fields.minutes >> wall.minute
            if later:
                return _minute(year, month, day, hour, wall.minute + _lowest(later))
        later = fields.hours >> hour + 1
        if later:
            return _minute(year, month, day, hour + 1 + _lowest(later), _lowest(fields.minutes))
    while True:
        if fields.months >> month & 1:
            later = _days(fields, year, month) >> day + 1
            if later:
                hour, minute = _lowest(fields.hours), _lowest(fields.minutes)
                return _minute(year, month, day + 1 + _lowest(later), hour, minute)
        day = 0
        later = fields.months >> month + 1
        if later:
            month += 1 + _lowest(later)
        elif year == MAXYEAR:
            return None
        else:
            year, month = year + 1, _lowest(fields.months)


def last_until(fields: Fields, wall: datetime) -> datetime | None:
    """Return the last matching minute that is not after the minute of ``wall``; ``None`` before the first year."""
    year, month, day, hour = wall.year, wall.month, wall.day, wall.hour
    if _allows_day(fields, wall):
        if fields.hours >> hour & 1:
            earlier = _below(fields.minutes, wall.minute + 1)
            if earlier:
                return _minute(year, month, day, hour, _highest(earlier))
        earlier = _below(fields.hours, hour)
        if earlier:
            return _minute(year, month, day, _highest(earlier), _highest(fields.minutes))
    while True:
        if fields.months >> month & 1:
            earlier = _below(_days(fields, year, month), day)
            if earlier:
                hour, minute = _highest(fields.hours), _highest(fields.minutes)
                return _minute(year, month, _highest(earlier), hour, minute)
        day = 32
        earlier = _below(fields.months, month)
        if earlier:
            month = _highest(earlier)
        elif year == MINYEAR:
            return None
        else:
            year, month = year - 1, _highest(fields.months)


def _allows_day(fields: Fields, wall: datetime) -> bool:
    if not fields.months >> wall.month & 1:
        return False
    return bool(fields.days >> wall.day & 1 or fields.weekdays >> wall.toordinal() % 7 & 1)


def _days(fields: Fields, year: int, month: int) -> int:
    """Return the matching days of this month, as bits."""
    days = fields.days
    if fields.weekdays:
        # Ordinals of Sundays are multiples of 7, so the remainder is the weekday as cron counts it.
        first = date(year, month, 1).toordinal() % 7
        week = (fields.weekdays >> first | fields.weekdays << 7 - first) & 0b111_1111
        days |= week * _WEEKS << 1
    return _below(days, _length(year, month) + 1)


def _length(year: int, month: int) -> int:
    if month != _FEBRUARY:
        return _LENGTHS[month]
    return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28


def _minute(year: int, month: int, day: int, hour: int, minute: int) -> datetime:
    return datetime(year, month, day, hour, minute)  # noqa: DTZ001 - the calendar has no zone


def _below(bits: int, limit: int) -> int:
    return bits & (1 << limit) - 1


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _highest(bits: int) -> int:
    return bits.bit_length() - 1
