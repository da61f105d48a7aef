"""Occurrences found by brute force: check each instant against the local time of the zone."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from tests.policy.cron.expressions import Meaning

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)

ZONES = {
    "Africa/Cairo": "daylight saving left and taken up again, some of it at midnight",
    "America/Havana": "midnight comes twice",
    "America/Juneau": "a whole day came twice, in 1867",
    "America/New_York": "the usual, west of Greenwich",
    "America/Sao_Paulo": "midnight was skipped",
    "Asia/Beirut": "midnight is skipped",
    "Asia/Kathmandu": "offsets of a quarter of an hour",
    "Asia/Kolkata": "no daylight saving since 1945",
    "Australia/Lord_Howe": "shifts of half an hour",
    "Europe/Amsterdam": "offsets with odd seconds until 1937",
    "Europe/Dublin": "summer is the standard",
    "Europe/Kyiv": "shifts at three in the morning",
    "Pacific/Apia": "30 December 2011 was skipped",
    "Pacific/Kwajalein": "21 August 1993 was skipped, 30 September 1969 nearly came twice",
    "UTC": "nothing ever happens",
}


def offset_at(zone: ZoneInfo, at: datetime) -> timedelta:
    offset = at.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


@functools.cache
def shifts_of(key: str) -> tuple[datetime, ...]:
    """Return the instants from 1850 to 2060 at which the zone changed its offset."""
    zone = ZoneInfo(key)
    found = []
    at, last = datetime(1850, 1, 1, tzinfo=UTC), datetime(2060, 1, 1, tzinfo=UTC)
    while at < last:
        if offset_at(zone, at) != offset_at(zone, at + DAY):
            low, high = at, at + DAY
            while high - low > SECOND:
                middle = low + (high - low) // 2
                middle = middle.replace(microsecond=0)
                low, high = (middle, high) if offset_at(zone, middle) == offset_at(zone, low) else (low, middle)
            found.append(high)
        at += DAY
    return tuple(found)


def occurrences(text: str, zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[datetime]:
    """Yield every occurrence from ``start`` to ``end``, in UTC, both included; ``start`` is a whole second."""
    meaning = Meaning.of(text)
    has_odd_seconds = any(offset_at(zone, at).total_seconds() % 60 for at in (start, end))
    at, step = start, SECOND
    if not has_odd_seconds:
        at, step = start + timedelta(seconds=-start.second % 60), MINUTE
    while at <= end:
        wall = at.astimezone(zone)
        if wall.second == 0 and meaning.allows(wall):
            yield at
        at += step
