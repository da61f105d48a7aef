"""Cron expressions are described in English."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmill.cron import CronExpression
from tests.policy.cron.expressions import RANGES, fields, is_possible, valid_texts, values

ALL_WEEKDAYS = set(range(7))
ALL_DAYS = set(range(1, 32))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("* * * * *", "every minute"),
        ("0-59 0-23 * * *", "every minute"),
        ("0 * * * *", "at minute 0 of every hour"),
        ("0,15,30,45 * * * *", "every 15 minutes"),
        ("0,30 * * * *", "every 30 minutes"),
        ("5,35 * * * *", "at minutes 5 and 35 of every hour"),
        ("0,1,2,10 * * * *", "at minutes 0 to 2 and 10 of every hour"),
        ("30 2 * * *", "at 02:30 every day"),
        ("30 2 * * 1-5", "at 02:30 on Monday to Friday"),
        ("0 0 1 1 *", "at 00:00 on day 1 of the month in January"),
        ("0,30 9,17 * * *", "at 09:00, 09:30, 17:00 and 17:30 every day"),
        ("* 9-17 * * 1-5", "every minute from 09:00 to 17:59 on Monday to Friday"),
        ("0,15,30,45 8,9,20 * * *", "every 15 minutes from 08:00 to 09:59 and from 20:00 to 20:59 every day"),
        ("7 0,2,4,6,8,10,12,14,16,18,20,22 * * *", "at minute 7 of every 2nd hour every day"),
        ("7 0,3,6,9,12,15,18,21 * * 1", "at minute 7 of every 3rd hour on Monday"),
        ("7,8 0,4,8,12,16,20 * * *", "at minutes 7 and 8 of every 4th hour every day"),
        ("0,7,14,21,28,35,42,49,56 * * * *", "at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour"),
        ("7 9-17 * * *", "at minute 7 of hours 9 to 17 every day"),
        ("0 6 1,15 * *", "at 06:00 on days 1 and 15 of the month"),
        ("0 6 13 * 5", "at 06:00 on day 13 of the month or on Friday"),
        ("0 6 * * 0,6", "at 06:00 on Saturday and Sunday"),
        ("0 6 * * 0,1,2", "at 06:00 on Monday, Tuesday and Sunday"),
        ("* * * 6-8,12 *", "every minute in June to August and December"),
        ("0 6 1-31 * 1", "at 06:00 every day"),
    ],
)
def test_expressions_read_as_people_say_them(text: str, words: str) -> None:
    assert CronExpression.parse(text).in_words() == words


def meaning(text: str) -> tuple[object, ...]:
    """Return a value that is equal for expressions that match the same minutes, or nearly so (lengths of months)."""
    parts = text.split()
    minutes, hours, days, months, weekdays = (values(part, place) for place, part in enumerate(parts))
    if parts[4] == "*" or (parts[2] == "*" and weekdays == ALL_WEEKDAYS):
        weekdays = set()
    elif parts[2] == "*":
        days = set()
    if days == ALL_DAYS or weekdays == ALL_WEEKDAYS:
        days, weekdays = ALL_DAYS, set()
    return minutes, hours, days, months, weekdays


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, str]:
    """Return two expressions that differ in at most one field."""
    first = draw(valid_texts)
    place = draw(st.integers(0, 4))
    parts = first.split()
    parts[place] = draw(fields(*RANGES[place]))
    return first, " ".join(parts)


@given(pairs())
def test_expressions_have_the_same_words_exactly_if_they_mean_the_same(pair: tuple[str, str]) -> None:
    if not all(map(is_possible, pair)):
        return
    first, second = pair
    told_alike = CronExpression.parse(first).in_words() == CronExpression.parse(second).in_words()
    assert told_alike == (meaning(first) == meaning(second))


@given(valid_texts)
def test_words_are_words(text: str) -> None:
    words = CronExpression.parse(text).in_words()
    assert words == " ".join(words.split())
    assert words.startswith(("at ", "every "))
