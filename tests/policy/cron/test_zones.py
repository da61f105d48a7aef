"""Occurrences in time zones: exactly the instants at which the local time shows a matching minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmill import ConfigError
from taskmill.cron import CronExpression
from tests.policy.cron.expressions import Meaning, is_possible, valid_texts
from tests.policy.cron.oracle import DAY, HOUR, MINUTE, SECOND, ZONES, occurrences, offset_at, shifts_of
from tests.repetition import often

NEAR = timedelta(hours=30)


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, str, datetime]:
    """Return a zone, an expression and an instant, mostly near a shift of the zone and its time of day."""
    key = draw(st.sampled_from(sorted(ZONES)))
    shifts = shifts_of(key)
    if not shifts or draw(st.integers(0, 9)) >= 7:
        at = draw(st.datetimes(datetime(1850, 1, 1), datetime(2150, 1, 1)))
        return key, draw(valid_texts), at.replace(tzinfo=UTC)
    shift = draw(st.sampled_from(shifts))
    away = draw(
        st.one_of(st.integers(-7200, 7200), st.integers(-100_000, 100_000), st.sampled_from([-60, -1, 0, 1, 60]))
    )
    at = shift + timedelta(seconds=away, microseconds=draw(st.sampled_from([0, 0, 1, 999_999])))
    beside = (shift + timedelta(minutes=draw(st.integers(-90, 90)))).astimezone(ZoneInfo(key))
    minute = draw(st.sampled_from(["*", str(beside.minute), "0", "30", "0,15,30,45", "59"]))
    hour = draw(st.sampled_from(["*", str(beside.hour), "0-3", "23", "0"]))
    day, month, weekday = draw(
        st.sampled_from(
            [
                ("*", "*", "*"),
                (str(beside.day), str(beside.month), "*"),
                ("*", "*", str(beside.isoweekday() % 7)),
                ("1", "*", "0"),
            ]
        )
    )
    return key, f"{minute} {hour} {day} {month} {weekday}", at


@settings(max_examples=often(80))
@given(cases())
def test_next_and_previous_are_what_looking_at_every_minute_finds(case: tuple[str, str, datetime]) -> None:
    key, text, at = case
    zone = ZoneInfo(key)
    whole = at.replace(microsecond=0)
    has_odd_seconds = any((when.astimezone(zone).utcoffset() or DAY).seconds % 60 for when in (at - NEAR, at + NEAR))
    near = timedelta(hours=3) if has_odd_seconds else NEAR
    found = list(occurrences(text, zone, whole - near, whole + near))
    later = next((instant for instant in found if instant > at), None)
    earlier = next((instant for instant in reversed(found) if instant <= at), None)
    expression = CronExpression.parse(text)
    following, preceding = expression.next(at.astimezone(zone)), expression.previous(at.astimezone(zone))
    for answer in (following, preceding):
        assert answer.tzinfo is zone
        assert answer.astimezone(UTC).astimezone(zone).fold == answer.fold, "the fold is that of the instant"
        assert answer.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == answer.replace(tzinfo=None)
        assert (answer.second, answer.microsecond) == (0, 0)
    assert following.astimezone(UTC) == later if later else following.astimezone(UTC) > whole + near
    assert preceding.astimezone(UTC) == earlier if earlier else preceding.astimezone(UTC) < whole - near


@given(cases())
def test_a_minute_matches_as_its_wall_does(case: tuple[str, str, datetime]) -> None:
    key, text, at = case
    local = at.astimezone(ZoneInfo(key))
    assert CronExpression.parse(text).matches(local) == Meaning.of(text).allows(local)


@given(cases())
def test_going_on_and_back_leads_to_the_same_occurrences(case: tuple[str, str, datetime]) -> None:
    key, text, at = case
    expression, zone = CronExpression.parse(text), ZoneInfo(key)
    found = [expression.next(at.astimezone(zone)).astimezone(UTC)]
    for _ in range(5):
        found.append(expression.next(found[-1].astimezone(zone)).astimezone(UTC))
    assert found == sorted(set(found))
    for earlier, later in pairwise(found):
        assert expression.previous(later.astimezone(zone)).astimezone(UTC) == later
        before = (later - timedelta(microseconds=1)).astimezone(zone)
        assert expression.previous(before).astimezone(UTC) == earlier
        assert expression.matches(later.astimezone(zone))


@given(cases(), st.integers(-14 * 60, 14 * 60))
def test_a_fixed_offset_is_a_zone_where_nothing_happens(case: tuple[str, str, datetime], minutes: int) -> None:
    _, text, at = case
    zone = timezone(timedelta(minutes=minutes))
    shifted = (at + timedelta(minutes=minutes)).replace(tzinfo=UTC)
    expression = CronExpression.parse(text)
    assert expression.next(at.astimezone(zone)).replace(tzinfo=UTC) == expression.next(shifted)
    assert expression.previous(at.astimezone(zone)).replace(tzinfo=UTC) == expression.previous(shifted)


def local(key: str, *wall: int, fold: int = 0) -> datetime:
    return datetime(*wall, tzinfo=ZoneInfo(key), fold=fold)  # type: ignore[arg-type, misc]


def some(text: str, start: datetime, count: int) -> list[str]:
    """Return so many occurrences from ``start`` on, with their offsets."""
    expression = CronExpression.parse(text)
    found = [expression.next(start)]
    while len(found) < count:
        found.append(expression.next(found[-1]))
    return [f"{at:%Y-%m-%d %H:%M%z}" for at in found]


def test_a_skipped_minute_does_not_occur() -> None:
    assert some("30 2 * * *", local("Europe/Berlin", 2026, 3, 28, 12), 2) == [
        "2026-03-30 02:30+0200",
        "2026-03-31 02:30+0200",
    ]
    assert some("0 3 * * *", local("Europe/Berlin", 2026, 3, 28, 12), 1) == ["2026-03-29 03:00+0200"]
    assert some("* 1-3 * * *", local("Europe/Berlin", 2026, 3, 29, 1, 58), 2) == [
        "2026-03-29 01:59+0100",
        "2026-03-29 03:00+0200",
    ]


def test_a_repeated_minute_occurs_twice() -> None:
    assert some("30 2 * * *", local("Europe/Berlin", 2026, 10, 24, 12), 3) == [
        "2026-10-25 02:30+0200",
        "2026-10-25 02:30+0100",
        "2026-10-26 02:30+0100",
    ]
    first = local("Europe/Berlin", 2026, 10, 25, 2, 45)
    assert CronExpression.parse("30 2 * * *").next(first).fold == 1
    assert CronExpression.parse("30 2 * * *").previous(first) == local("Europe/Berlin", 2026, 10, 25, 2, 30)
    second = local("Europe/Berlin", 2026, 10, 25, 2, 15, fold=1)
    assert CronExpression.parse("30 2 * * *").previous(second).astimezone(UTC) == datetime(
        2026, 10, 25, 0, 30, tzinfo=UTC
    )


def test_half_hours_that_are_skipped_and_repeated() -> None:
    assert some("15 2 * * *", local("Australia/Lord_Howe", 2026, 10, 3, 12), 1) == ["2026-10-05 02:15+1100"]
    assert some("45 1 * * *", local("Australia/Lord_Howe", 2026, 4, 4, 12), 2) == [
        "2026-04-05 01:45+1100",
        "2026-04-05 01:45+1030",
    ]


def test_a_day_that_is_skipped_has_no_occurrences() -> None:
    assert some("0 12 * * *", local("Pacific/Apia", 2011, 12, 28, 13), 2) == [
        "2011-12-29 12:00-1000",
        "2011-12-31 12:00+1400",
    ]
    assert some("0 12 30 12 *", local("Pacific/Apia", 2011, 12, 1), 1) == ["2012-12-30 12:00+1400"]
    assert CronExpression.parse("* * 30 * *").previous(local("Pacific/Apia", 2011, 12, 31)).day == 30
    assert CronExpression.parse("* * 30 * *").previous(local("Pacific/Apia", 2011, 12, 31)).month == 11


def test_a_day_that_is_repeated_has_all_its_occurrences_twice() -> None:
    found = some("0 12 * * *", local("America/Juneau", 1867, 10, 17, 18), 4)
    assert [at[:16] for at in found] == ["1867-10-18 12:00", "1867-10-19 12:00", "1867-10-19 12:00", "1867-10-20 12:00"]


def test_midnight_that_is_skipped_and_midnight_that_comes_twice() -> None:
    assert some("0 0 * * *", local("Asia/Beirut", 2026, 3, 28, 12), 1) == ["2026-03-30 00:00+0300"]
    assert some("0 0 * * *", local("America/Havana", 2026, 10, 31, 12), 3) == [
        "2026-11-01 00:00-0400",
        "2026-11-01 00:00-0500",
        "2026-11-02 00:00-0500",
    ]


def test_offsets_with_seconds_place_minutes_between_those_of_utc() -> None:
    found = CronExpression.parse("* * * * *").next(
        datetime(1900, 1, 1, tzinfo=UTC).astimezone(ZoneInfo("Europe/Amsterdam"))
    )
    assert (found.second, found.astimezone(UTC).second) == (0, 60 - (found.utcoffset() or DAY).seconds % 60)


def test_shifts_by_odd_seconds_cut_minutes_and_only_whole_beginnings_count() -> None:
    expression, checked = CronExpression.parse("* * * * *"), 0
    for key in [*ZONES, "Africa/Monrovia", "Asia/Kuala_Lumpur", "America/La_Paz"]:
        zone = ZoneInfo(key)
        for shift in shifts_of(key):
            if not (offset_at(zone, shift) - offset_at(zone, shift - SECOND)).seconds % 60:
                continue
            found = list(occurrences("* * * * *", zone, shift - 5 * MINUTE, shift + HOUR))
            for second in range(-130, 130):
                at = shift + second * SECOND
                later = next((instant for instant in found if instant > at), None)
                earlier = next((instant for instant in reversed(found) if instant <= at), None)
                if later is not None:
                    assert expression.next(at.astimezone(zone)).astimezone(UTC) == later
                assert expression.previous(at.astimezone(zone)).astimezone(UTC) == earlier
            checked += 1
    assert checked > 10


def test_a_wall_that_does_not_exist_is_read_as_the_instant_it_stands_for() -> None:
    skipped = local("Europe/Berlin", 2026, 3, 29, 2, 30)  # 01:30 UTC, when clocks show 03:30
    assert CronExpression.parse("30 3 * * *").matches(skipped)
    assert not CronExpression.parse("30 2 * * *").matches(skipped)
    assert CronExpression.parse("30 3 * * *").previous(skipped).astimezone(UTC) == skipped.astimezone(UTC)
    assert CronExpression.parse("31 3 * * *").next(skipped).astimezone(UTC) == skipped.astimezone(UTC) + MINUTE


class TwoShiftsOfItsOwn(tzinfo):
    """A zone that is in no database, written as the standard library requires: three hours forward, then back."""

    FORWARD, BACK = datetime(2030, 5, 1, 10), datetime(2030, 9, 1, 10)

    def utcoffset(self, dt: datetime | None) -> timedelta:
        assert dt is not None
        wall = dt.replace(tzinfo=None)
        begins = self.FORWARD + (3 * HOUR if dt.fold == 0 else timedelta())
        ends = self.BACK + (3 * HOUR if dt.fold == 0 else timedelta())
        return 3 * HOUR if begins <= wall < ends else timedelta()

    def dst(self, dt: datetime | None) -> timedelta:
        return timedelta()

    def tzname(self, dt: datetime | None) -> str:
        return "its own"

    def fromutc(self, dt: datetime) -> datetime:
        at = dt.replace(tzinfo=None)
        if not self.FORWARD <= at < self.BACK:
            return dt.replace(fold=int(self.BACK <= at < self.BACK + 3 * HOUR))
        return dt + 3 * HOUR


def test_any_zone_that_knows_fold_will_do() -> None:
    zone = TwoShiftsOfItsOwn()
    expression = CronExpression.parse("30 11 * * *")
    spring = expression.next(datetime(2030, 4, 30, 12, tzinfo=zone))
    assert spring.replace(tzinfo=None) == datetime(2030, 5, 2, 11, 30)
    autumn = [expression.next(datetime(2030, 8, 31, 12, tzinfo=zone))]
    autumn.append(expression.next(autumn[0]))
    assert [at.astimezone(UTC).hour for at in autumn] == [8, 11]
    assert [at.fold for at in autumn] == [0, 1]


class Nonsense(tzinfo):
    """A zone that claims to skip every local time."""

    def utcoffset(self, dt: datetime | None) -> timedelta:
        assert dt is not None
        return dt.fold * HOUR

    def dst(self, dt: datetime | None) -> timedelta:
        return timedelta()

    def tzname(self, dt: datetime | None) -> str:
        return "nonsense"

    def fromutc(self, dt: datetime) -> datetime:
        return dt


def test_a_zone_that_contradicts_itself_does_not_keep_the_search_in_place() -> None:
    at = datetime(9999, 12, 31, 22, tzinfo=Nonsense())
    with pytest.raises(ConfigError, match="no occurrence"):
        CronExpression.parse("* * * * *").next(at)
    with pytest.raises(ConfigError, match="no occurrence"):
        CronExpression.parse("* * * * *").previous(datetime(1, 1, 1, 3, tzinfo=Nonsense()))


def test_seconds_of_the_question_do_not_matter() -> None:
    expression, at = CronExpression.parse("* * * * *"), datetime(2030, 1, 1, 12, tzinfo=UTC)
    assert expression.next(at) == at + MINUTE
    assert expression.next(at + 59 * SECOND) == at + MINUTE
    assert expression.next(at - timedelta(microseconds=1)) == at
    assert expression.previous(at) == at
    assert expression.previous(at + 59 * SECOND) == at
    assert expression.matches(at + 59 * SECOND)


@pytest.mark.parametrize("text", ["0 0 30 2 1", "0 0 29 2 *"])
def test_a_possible_occurrence_is_found(text: str) -> None:
    assert is_possible(text)
    assert CronExpression.parse(text).next(datetime(2097, 1, 1, tzinfo=UTC)).year in (2097, 2104)
