"""Find cron occurrences in a time zone: map matching minutes of wall time to instants.

An occurrence is an instant at which a local clock shows the first moment of a matching minute. A minute that daylight
saving time skips is never shown, so it has no occurrence; a minute that is shown twice has two.

Wall time ascends with real time except where the clock is set back. So a search walks forward in wall time; if it
starts in the hour (or day) that will be repeated, it starts again from the wall time shown after the clock was set
back. A skipped span is crossed in one step. This requires that shifts lie further apart than they are long, which is
true of every zone so far.

Inside one zone Python compares and adds datetimes by wall time and ignores ``fold``, so this module never does that.
Wall times and instants are both naive datetimes here, instants in UTC: wall time minus its offset is the instant.

Laws: ``first_after`` is the earliest occurrence that is later, ``last_at`` the latest that is not later. Both are exact
for any zone that distinguishes equal wall times by ``fold`` (PEP 495), and ``None`` where a datetime in UTC cannot
represent the instant.
"""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple, cast

from taskmill.policy.cron.matching import first_from, last_until
from taskmill.policy.cron.syntax import Fields

_MINUTE = timedelta(minutes=1)
_SECOND = timedelta(seconds=1)
_MOMENT = timedelta.resolution


class _Offsets(NamedTuple):
    """The UTC offsets of a wall time, for the first and the second time it is shown.

    They are equal if it is shown once. The second is smaller if it is repeated, and larger if it is skipped (PEP 495).
    """

    first: timedelta
    second: timedelta


def first_after(fields: Fields, after: datetime) -> datetime | None:
    """Return the earliest occurrence later than ``after``, in its zone."""
    try:
        return _first_after(fields, after.astimezone(UTC), _zone_of(after))
    except OverflowError:
        return None


def last_at(fields: Fields, at: datetime) -> datetime | None:
    """Return the latest occurrence that is not later than ``at``, in its zone."""
    try:
        return _last_at(fields, at.astimezone(UTC), _zone_of(at))
    except OverflowError:
        return None


def _first_after(fields: Fields, after: datetime, zone: tzinfo) -> datetime | None:
    local = after.astimezone(zone)
    offsets = _offsets(local, zone)
    wall = _floor(local) + _MINUTE
    earliest = _naive(after)
    if offsets.first > offsets.second and local.fold == 0:
        put_back = _shift(zone, earliest, earliest + (offsets.first - offsets.second))
        found = first_from(fields, wall)
        if found is not None and found < put_back + offsets.first:
            return found.replace(tzinfo=zone)
        earliest = put_back
        wall = _ceiling(put_back + offsets.second)
    while (found := first_from(fields, wall)) is not None:
        offsets = _offsets(found, zone)
        if offsets.first < offsets.second:
            # This advances by at least a minute even in an inconsistent zone: the shift is later than `found` minus
            # the second offset.
            wall = _ceiling(_shift_over(found, offsets, zone) + offsets.second)
        else:
            is_late = found - offsets.first < earliest
            return found.replace(tzinfo=zone, fold=1) if is_late else found.replace(tzinfo=zone)
    return None


def _last_at(fields: Fields, at: datetime, zone: tzinfo) -> datetime | None:
    local = at.astimezone(zone)
    offsets = _offsets(local, zone)
    wall = _floor(local)
    latest = _naive(at)
    if offsets.first > offsets.second and local.fold == 1:
        put_back = _shift(zone, latest - (offsets.first - offsets.second), latest)
        found = last_until(fields, wall)
        if found is not None and found >= put_back + offsets.second:
            return found.replace(tzinfo=zone, fold=1)
        latest = put_back - _MOMENT
        wall = _floor(latest + offsets.first)
    while (found := last_until(fields, wall)) is not None:
        offsets = _offsets(found, zone)
        if offsets.first < offsets.second:
            wall = _floor(_shift_over(found, offsets, zone) + offsets.first - _MOMENT)
        else:
            is_repeated = found - offsets.second <= latest and offsets.first > offsets.second
            return found.replace(tzinfo=zone, fold=1) if is_repeated else found.replace(tzinfo=zone)
    return None


def _offsets(wall: datetime, zone: tzinfo) -> _Offsets:
    # The zone needs only the wall time and its fold, so skip replacing tzinfo: replacing parts of a datetime is slow.
    if wall.fold:
        return _Offsets(_known(zone.utcoffset(wall.replace(fold=0))), _known(zone.utcoffset(wall)))
    return _Offsets(_known(zone.utcoffset(wall)), _known(zone.utcoffset(wall.replace(fold=1))))


def _shift_over(wall: datetime, offsets: _Offsets, zone: tzinfo) -> datetime:
    """Return the instant at which the clock was set forward past ``wall``."""
    return _shift(zone, wall - offsets.second, wall - offsets.first)


def _shift(zone: tzinfo, before: datetime, until: datetime) -> datetime:
    """Return when, after ``before`` and not after ``until``, the zone changes its offset, exact to the second."""
    begin = before.replace(microsecond=0, tzinfo=UTC)
    offset = _offset_at(begin, zone)
    low, high = 0, -((begin - until.replace(tzinfo=UTC)) // _SECOND)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset_at(begin + middle * _SECOND, zone) == offset:
            low = middle
        else:
            high = middle
    return _naive(begin + high * _SECOND)


def _offset_at(at: datetime, zone: tzinfo) -> timedelta:
    return _known(at.astimezone(zone).utcoffset())


def _zone_of(at: datetime) -> tzinfo:
    return cast("tzinfo", at.tzinfo)


def _known(offset: timedelta | None) -> timedelta:
    return cast("timedelta", offset)


def _naive(at: datetime) -> datetime:
    return at.replace(tzinfo=None)


def _floor(wall: datetime) -> datetime:
    return datetime(wall.year, wall.month, wall.day, wall.hour, wall.minute)  # noqa: DTZ001 - wall times have no zone


def _ceiling(wall: datetime) -> datetime:
    floor = _floor(wall)
    return floor if floor == wall else floor + _MINUTE
