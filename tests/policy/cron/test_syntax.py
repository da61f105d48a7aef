"""Valid cron expressions are parsed, and others are refused with a clear message."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taskmill import ConfigError
from taskmill.cron import (
    AlreadyActive,
    CronExpression,
    DuplicateRegistration,
    InvalidCronExpression,
    InvalidRegistration,
)
from taskmill.policy.cron.syntax import parsed
from tests.policy.cron.expressions import RANGES, fields, is_possible, numbers, valid_texts, values

FIELDS = ("minute", "hour", "day", "month", "weekday")


def refusal(text: object) -> InvalidCronExpression:
    with pytest.raises(InvalidCronExpression) as raised:
        CronExpression.parse(text)  # type: ignore[arg-type]
    assert raised.value.expression == text
    return raised.value


def bits(numbers: set[int]) -> int:
    return sum(1 << number for number in numbers)


@given(valid_texts)
def test_each_field_allows_the_numbers_that_are_written(text: str) -> None:
    minutes, hours, days, months, weekdays = (bits(values(part, place)) for place, part in enumerate(text.split()))
    read = parsed(text)
    assert (read.minutes, read.hours, read.months) == (minutes, hours, months)
    any_day, any_weekday = text.split()[2] == "*", text.split()[4] == "*"
    assert read.days == (0 if any_day and not any_weekday else days)
    assert read.weekdays == (0 if any_weekday else weekdays)


@given(
    valid_texts, st.lists(st.text(" \t", min_size=1, max_size=3), min_size=4, max_size=4), st.text(" \t", max_size=2)
)
def test_blanks_between_and_around_fields_mean_nothing_but_are_kept(text: str, blanks: list[str], around: str) -> None:
    parts = text.split()
    spaced = around + "".join(part + blank for part, blank in zip(parts, [*blanks, around], strict=True))
    read = CronExpression.parse(spaced)
    assert read.fields == CronExpression.parse(text).fields
    assert str(read) == read.text == spaced
    assert (read == CronExpression.parse(text)) == (spaced == text)


ALPHABET = st.one_of(st.sampled_from("0123456789*,-/ \t\n?LW#@+_.:٣²Ⅷ½\u3000\xa0\0\ud800"), st.characters())


@given(
    st.one_of(
        st.text(ALPHABET, max_size=30), st.lists(st.text(ALPHABET, max_size=6), min_size=5, max_size=5).map(" ".join)
    )
)
@example("9" * 100_000 + " * * * *")
@example("0" * 100_000 + "5 * * * *")
def test_any_text_is_understood_or_refused_with_field_and_reason(text: str) -> None:
    read: CronExpression | InvalidCronExpression
    try:
        read = CronExpression.parse(text)
    except InvalidCronExpression as refused:
        read = refused
    if isinstance(read, InvalidCronExpression):
        assert read.expression == text
        assert read.field in (*FIELDS, "expression")
        assert read.reason
        assert len(str(read)) < 400
        return
    assert set(text) <= set("0123456789*,- \t")
    assert read.fields.minutes
    assert read.fields.hours
    assert read.fields.months
    assert read.fields.days | read.fields.weekdays


@pytest.mark.parametrize(
    ("field", "place", "reason"),
    [
        ("*/5", 0, "steps are not POSIX: list the numbers, 0,5,10,15,20,25,30,35,40,45,50,55"),
        ("*/10", 2, "steps are not POSIX: list the numbers, 1,11,21,31"),
        ("0-30/15", 0, "steps are not POSIX: list the numbers, 0,15,30"),
        ("0-70/15", 0, "steps are not POSIX: list the numbers"),
        ("*/0", 0, "steps are not POSIX: list the numbers"),
        ("60", 0, "'60' is not from 0 to 59"),
        ("24", 1, "'24' is not from 0 to 23"),
        ("0", 2, "'0' is not from 1 to 31"),
        ("32", 2, "'32' is not from 1 to 31"),
        ("0", 3, "'0' is not from 1 to 12"),
        ("13", 3, "'13' is not from 1 to 12"),
        ("7", 4, "'7' is not from 0 to 6: Sunday is 0"),
        ("5-7", 4, "'7' is not from 0 to 6: Sunday is 0"),
        ("100", 0, "'100' is not from 0 to 59"),
        ("jan", 3, "names are not POSIX"),
        ("MON-FRI", 4, "names are not POSIX"),
        ("?", 2, "'?', 'L', 'W' and '#' are not POSIX"),
        ("L", 2, "'?', 'L', 'W' and '#' are not POSIX"),
        ("15W", 2, "'?', 'L', 'W' and '#' are not POSIX"),
        ("5L", 4, "'?', 'L', 'W' and '#' are not POSIX"),
        ("1#2", 4, "'?', 'L', 'W' and '#' are not POSIX"),
        ("5-4", 0, "goes backwards"),
        ("22-2", 1, "goes backwards"),
        ("6-0", 4, "goes backwards"),
        ("-1", 0, "numbers have no sign"),
        ("+1", 0, "numbers have no sign"),
        ("1--5", 0, "numbers have no sign"),
        ("1,*", 0, "'*' must stand alone"),
        ("*,*", 0, "'*' must stand alone"),
        ("*-5", 0, "'*' must stand alone"),
        ("**", 0, "'*' must stand alone"),
        ("1,", 0, "between two commas"),
        (",1", 0, "between two commas"),
        ("1,,2", 0, "between two commas"),
        (",", 0, "between two commas"),
        ("1-", 0, "a number or a range"),
        ("1-2-3", 0, "a number or a range"),
        ("1.5", 0, "a number or a range"),
        ("1_0", 0, "a number or a range"),
        ("٣", 0, "only ASCII digits are allowed"),
        ("１", 0, "only ASCII digits are allowed"),
        ("²", 0, "only ASCII digits are allowed"),
        ("1\n", 4, "only spaces and tabs"),
        ("1\r", 4, "only spaces and tabs"),
        ("1\xa02", 0, "only spaces and tabs"),
        ("1\x0b2", 0, "only spaces and tabs"),
    ],
)
def test_syntax_beyond_posix_is_refused_in_its_field(field: str, place: int, reason: str) -> None:
    parts = ["1", "1", "1", "1", "*"]
    parts[place] = field
    error = refusal(" ".join(parts))
    assert error.field == FIELDS[place]
    assert reason in error.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        (" \t", "is empty"),
        ("@daily", "macros are not POSIX"),
        ("@every 5m", "macros are not POSIX"),
        ("* * * *", "has 4 fields"),
        ("*", "has 1 field,"),
        ("0 * * * * *", "has 6 fields"),
        ("* * * * * command", "has 6 fields"),
        ("*\n* * * *", "has 4 fields"),
        ("0 0 30 2 *", "never matches"),
        ("0 0 31 2,4,6,9,11 *", "never matches"),
        ("0 0 30-31 2 *", "never matches"),
    ],
)
def test_an_error_of_the_whole_expression_is_reported_for_the_whole(text: str, reason: str) -> None:
    error = refusal(text)
    assert error.field == "expression"
    assert reason in error.reason


@pytest.mark.parametrize("given", [None, 5, b"* * * * *", ["*"] * 5])
def test_a_value_that_is_not_text_is_refused(given: object) -> None:
    error = refusal(given)
    assert (error.field, error.reason) == ("expression", f"must be text, not {type(given).__name__}")


@pytest.mark.parametrize(
    "text", ["0 0 29 2 *", "0 0 30 2 1", "0 0 31 1-2 *", "0 0 30,1 2 *", "007 01 1 001 00", "5-5 * * * *"]
)
def test_an_expression_that_can_match_is_accepted(text: str) -> None:
    CronExpression.parse(text)


@given(st.tuples(*(fields(low, high) for low, high in RANGES)).map(" ".join))
def test_an_expression_is_refused_as_never_matching_exactly_if_no_day_of_it_exists(text: str) -> None:
    if is_possible(text):
        CronExpression.parse(text)
    else:
        assert refusal(text).field == "expression"


@given(st.integers(0, 4).flatmap(lambda place: st.tuples(st.just(place), numbers(0, 10**6))))
def test_a_number_is_accepted_exactly_within_its_range(case: tuple[int, str]) -> None:
    place, number = case
    parts = ["*"] * 5
    parts[place] = number
    low, high = RANGES[place]
    if low <= int(number) <= high:
        CronExpression.parse(" ".join(parts))
    else:
        assert refusal(" ".join(parts)).field == FIELDS[place]


def test_the_first_wrong_field_is_the_one_told() -> None:
    assert refusal("60 24 32 13 7").field == "minute"
    assert refusal("0 24 32 13 7").field == "hour"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (InvalidCronExpression("60 * * * *", "minute", "too many"), "minute of cron expression '60 * * * *': too many"),
        (InvalidCronExpression("x", "expression", "odd"), "cron expression 'x': odd"),
        (InvalidRegistration(2, "sync", "odd"), "cron registration 2 ('sync'): odd"),
        (InvalidRegistration(0, None, "odd"), "cron registration 0: odd"),
        (DuplicateRegistration("sync"), "cron task 'sync' is registered twice: give each cron task its own name"),
        (AlreadyActive("running"), "the cron scheduler is already running: stop it before you initialize it again"),
    ],
)
def test_the_errors_of_cron_are_config_errors_that_read_well_and_travel(error: ConfigError, words: str) -> None:
    assert isinstance(error, ConfigError)
    assert str(error) == words
    for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(copied), str(copied), vars(copied)) == (type(error), words, vars(error))


def test_an_expression_shows_how_to_make_it_and_is_equal_by_its_text() -> None:
    read = CronExpression.parse("0 0 * * *")
    assert repr(read) == "CronExpression.parse('0 0 * * *')"
    assert read == CronExpression.parse("0 0 * * *")
    assert read != CronExpression.parse("00 0 * * *")
    assert len({read, CronExpression.parse("0 0 * * *")}) == 1
