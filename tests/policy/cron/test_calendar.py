"""Occurrences on the plain calendar, in UTC: against another implementation, over long spans, at the ends of time."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from taskmill import ConfigError
from taskmill.cron import CronExpression
from tests.policy.cron.expressions import Meaning, valid_texts

moments = st.datetimes(datetime(1950, 1, 1), datetime(2120, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))


@given(valid_texts, moments)
def test_cronsim_agrees_on_what_comes(text: str, at: datetime) -> None:
    expression = CronExpression.parse(text)
    found = [expression.next(at)]
    for _ in range(4):
        found.append(expression.next(found[-1]))
    assert found == list(islice(CronSim(text, at), 5))


@given(valid_texts, moments)
def test_cronsim_agrees_on_what_has_been(text: str, at: datetime) -> None:
    # There "before" is strict; here an occurrence at the very instant counts.
    just_after = at.replace(second=0, microsecond=0) + timedelta(minutes=1)
    assert CronExpression.parse(text).previous(at) == next(CronSim(text, just_after, reverse=True))


@given(valid_texts, st.datetimes().map(lambda at: at.replace(tzinfo=UTC)))
def test_no_day_between_a_question_and_its_answer_matches(text: str, at: datetime) -> None:
    expression, meaning = CronExpression.parse(text), Meaning.of(text)
    for search, step in ((expression.next, 1), (expression.previous, -1)):
        try:
            answer = search(at)
        except ConfigError:
            continue
        assert meaning.allows(answer)
        assert (answer > at) == (step > 0)
        for ordinal in range(at.toordinal() + step, answer.toordinal(), step):
            assert not meaning.allows_day(datetime.combine(date.fromordinal(ordinal), datetime.min.time()))


def test_leap_days_are_found_across_a_century_that_has_none() -> None:
    leap_day = CronExpression.parse("0 12 29 2 *")
    assert leap_day.next(datetime(2096, 2, 29, 12, tzinfo=UTC)) == datetime(2104, 2, 29, 12, tzinfo=UTC)
    assert leap_day.previous(datetime(2104, 2, 29, 11, tzinfo=UTC)) == datetime(2096, 2, 29, 12, tzinfo=UTC)
    assert leap_day.next(datetime(1999, 1, 1, tzinfo=UTC)) == datetime(2000, 2, 29, 12, tzinfo=UTC)


def test_a_month_limits_and_of_day_and_weekday_either_matches() -> None:
    either = CronExpression.parse("0 0 13 3 5")  # the 13th and every Friday, in March
    at = datetime(2026, 1, 1, tzinfo=UTC)
    found = []
    for _ in range(6):
        at = either.next(at)
        found.append((at.year, at.month, at.day))
    assert found == [(2026, 3, 6), (2026, 3, 13), (2026, 3, 20), (2026, 3, 27), (2027, 3, 5), (2027, 3, 12)]


def test_all_days_written_as_a_range_are_not_a_star() -> None:
    monday = datetime(2026, 6, 1, tzinfo=UTC)
    assert CronExpression.parse("0 0 1-31 * 0").matches(monday)
    assert not CronExpression.parse("0 0 * * 0").matches(monday)


EVERY_MINUTE, NEW_YEAR = CronExpression.parse("* * * * *"), CronExpression.parse("0 0 1 1 *")
LAST, FIRST = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)


def test_where_datetimes_end_there_is_no_next() -> None:
    assert EVERY_MINUTE.next(LAST - timedelta(minutes=1)) == datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    for expression, after in ((EVERY_MINUTE, LAST), (NEW_YEAR, datetime(9999, 1, 1, tzinfo=UTC))):
        with pytest.raises(ConfigError, match=r"^after: .* has no occurrence between .* and the year 10000"):
            expression.next(after)


def test_where_datetimes_begin_there_is_no_previous() -> None:
    assert EVERY_MINUTE.previous(FIRST) == FIRST
    assert NEW_YEAR.previous(FIRST) == FIRST
    with pytest.raises(ConfigError, match=r"^at: .* has no occurrence between the year 1 and"):
        CronExpression.parse("1 0 1 1 *").previous(FIRST)


@pytest.mark.parametrize(
    "zone", [ZoneInfo("Pacific/Apia"), ZoneInfo("America/New_York"), timezone(timedelta(hours=-12))]
)
@pytest.mark.parametrize("at", [LAST, FIRST, LAST - timedelta(hours=13), FIRST + timedelta(hours=13)])
def test_at_the_ends_of_time_answers_exist_in_utc_or_are_refused(zone: ZoneInfo, at: datetime) -> None:
    try:
        local = at.astimezone(zone)
    except OverflowError:
        local = (datetime.max if at == LAST else datetime.min).replace(tzinfo=zone)
    for search in (EVERY_MINUTE.next, EVERY_MINUTE.previous, NEW_YEAR.next, NEW_YEAR.previous):
        try:
            answer = search(local)
        except ConfigError:
            continue
        answer.astimezone(UTC)


@pytest.mark.parametrize("given", [datetime(2026, 1, 1), "2026-01-01", None, date(2026, 1, 1), 1767225600])
def test_a_value_that_is_no_instant_is_refused_by_the_name_of_the_argument(given: datetime) -> None:
    for search, name in ((EVERY_MINUTE.next, "after"), (EVERY_MINUTE.previous, "at"), (EVERY_MINUTE.matches, "at")):
        with pytest.raises(ConfigError, match=f"^{name} must be an aware datetime"):
            search(given)
