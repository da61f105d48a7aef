"""Occurrences in a zone: matching minutes of the wall clock, placed on the line of instants.

An occurrence is an instant at which a clock on the wall would show the first moment of a matching minute. A minute
that daylight saving skips is never shown, so it has no occurrence; one that is shown twice has two.

Minutes of the wall ascend with time except where the clock is put back. So a search walks up the wall, and starts
again from what the clock shows after it was put back, if it begins in the hour (or the day) that will be repeated.
What is skipped is crossed in one step. This needs shifts that lie further apart than they are long; no zone ever
had others.

All arithmetic is in UTC: inside a zone Python compares and adds by the wall and forgets ``fold``.

Laws: ``first_after`` is the earliest occurrence that is later, ``last_at`` the latest that is not; both are exact
for any zone that says by ``fold`` which of two equal walls is meant (PEP 495), and ``None`` where a datetime in UTC
cannot say the instant.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple, cast

from taskmill.policy.cron.matching import first_from, last_until
from taskmill.policy.cron.syntax import Fields

_MINUTE = timedelta(minutes=1)
_SECOND = timedelta(seconds=1)
_MOMENT = timedelta.resolution


class _Offsets(NamedTuple):
    """How far a wall is ahead of UTC, the first and the second time it is shown; they are equal if it is shown once."""

    first: timedelta
    second: timedelta

    @property
    def are_of_skipped_wall(self) -> bool:
        return self.first < self.second

    @property
    def are_of_repeated_wall(self) -> bool:
        return self.first > self.second


def first_after(fields: Fields, after: datetime) -> datetime | None:
    """The earliest occurrence later than ``after``, in its zone."""
    try:
        return _first_after(fields, after.astimezone(UTC), _zone_of(after))
    except OverflowError:
        return None


def last_at(fields: Fields, at: datetime) -> datetime | None:
    """The latest occurrence that is not later than ``at``, in its zone."""
    try:
        return _last_at(fields, at.astimezone(UTC), _zone_of(at))
    except OverflowError:
        return None


def _first_after(fields: Fields, after: datetime, zone: tzinfo) -> datetime | None:
    local = after.astimezone(zone)
    earliest = after
    wall = _floor(local) + _MINUTE
    offsets = _offsets(local, zone)
    if offsets.are_of_repeated_wall and local.fold == 0:
        put_back = _shift(zone, after, after + (offsets.first - offsets.second))
        found = first_from(fields, wall)
        if found is not None and found < _wall(put_back, offsets.first):
            return found.replace(tzinfo=zone)
        earliest = put_back
        wall = _ceiling(_wall(put_back, offsets.second))
    while (found := first_from(fields, wall)) is not None:
        offsets = _offsets(found, zone)
        if offsets.are_of_skipped_wall:
            wall = _ceiling(_wall(_shift_over(found, offsets, zone), offsets.second))
        else:
            in_time = _instant(found, offsets.first) >= earliest
            return _placed(found, offsets, zone, fold=0 if in_time else 1)
    return None


def _last_at(fields: Fields, at: datetime, zone: tzinfo) -> datetime | None:
    local = at.astimezone(zone)
    latest = at
    wall = _floor(local)
    offsets = _offsets(local, zone)
    if offsets.are_of_repeated_wall and local.fold == 1:
        put_back = _shift(zone, at - (offsets.first - offsets.second), at)
        found = last_until(fields, wall)
        if found is not None and found >= _wall(put_back, offsets.second):
            return found.replace(tzinfo=zone, fold=1)
        latest = put_back - _MOMENT
        wall = _floor(_wall(latest, offsets.first))
    while (found := last_until(fields, wall)) is not None:
        offsets = _offsets(found, zone)
        if offsets.are_of_skipped_wall:
            wall = _floor(_wall(_shift_over(found, offsets, zone), offsets.first) - _MOMENT)
        else:
            in_time = offsets.are_of_repeated_wall and _instant(found, offsets.second) <= latest
            return _placed(found, offsets, zone, fold=1 if in_time else 0)
    return None


def _placed(wall: datetime, offsets: _Offsets, zone: tzinfo, fold: int) -> datetime:
    _instant(wall, offsets[fold])  # overflows where UTC has no datetime for it
    return wall.replace(tzinfo=zone, fold=fold)


def _offsets(wall: datetime, zone: tzinfo) -> _Offsets:
    return _Offsets(
        _offset(wall.replace(tzinfo=zone, fold=0)),
        _offset(wall.replace(tzinfo=zone, fold=1)),
    )


def _shift_over(wall: datetime, offsets: _Offsets, zone: tzinfo) -> datetime:
    """The instant at which the clock was put forward past ``wall``."""
    return _shift(zone, _instant(wall, offsets.second), _instant(wall, offsets.first))


def _shift(zone: tzinfo, before: datetime, until: datetime) -> datetime:
    """The instant after ``before`` and not after ``until`` at which the zone changes its offset, to the second."""
    before = before.replace(microsecond=0)
    offset = _offset(before.astimezone(zone))
    low, high = 0, -((before - until) // _SECOND)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset((before + middle * _SECOND).astimezone(zone)) == offset:
            low = middle
        else:
            high = middle
    return before + high * _SECOND


def _zone_of(at: datetime) -> tzinfo:
    return cast("tzinfo", at.tzinfo)


def _offset(local: datetime) -> timedelta:
    return cast("timedelta", local.utcoffset())


def _instant(wall: datetime, offset: timedelta) -> datetime:
    return wall.replace(tzinfo=UTC) - offset


def _wall(at: datetime, offset: timedelta) -> datetime:
    return (at + offset).replace(tzinfo=None)


def _floor(wall: datetime) -> datetime:
    return wall.replace(second=0, microsecond=0, tzinfo=None, fold=0)


def _ceiling(wall: datetime) -> datetime:
    floor = _floor(wall)
    return floor if floor == wall else floor + _MINUTE
