"""A list of declarations is checked in order, field by field; the first error is reported."""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmill import ConfigError, Context, Domain
from taskmill.cron import Cron, CronExpression, DuplicateRegistration, InvalidCronExpression, InvalidRegistration
from taskmill.define.task import handler_refusal
from taskmill.policy.cron.registrations import Registration, checked_registrations

HOURLY = "0 * * * *"


async def tidy() -> None: ...


def checked(registrations: object) -> tuple[Registration, ...]:
    return checked_registrations(registrations, handler_refusal)


def refusal(*registrations: object) -> InvalidRegistration:
    with pytest.raises(InvalidRegistration) as raised:
        checked(list(registrations))
    return raised.value


def test_tuples_and_crons_in_lists_and_tuples_are_understood() -> None:
    expected = (Registration("a", CronExpression.parse(HOURLY), tidy, 60_000),)
    assert checked([("a", HOURLY, tidy, 60)]) == expected
    assert checked((Cron("a", HOURLY, tidy, timedelta(minutes=1)),)) == expected
    assert checked([Cron(name="a", expression=HOURLY, handler=tidy, retry_delay=60.0)]) == expected
    assert checked([]) == checked(()) == ()


@pytest.mark.parametrize("given", [None, "abcd", {"a": 1}, iter([]), {1}, 5, Cron("a", HOURLY, tidy, 1)])
def test_the_whole_is_a_list_or_a_tuple(given: object) -> None:
    with pytest.raises(
        ConfigError, match=f"^registrations must be a list or tuple of Cron, not {type(given).__name__}$"
    ):
        checked(given)


@pytest.mark.parametrize("shape", [None, "abcd", 5, {}, ["a", HOURLY, tidy, 60], {"name": "a"}])
def test_a_registration_is_a_cron_or_a_tuple(shape: object) -> None:
    error = refusal(("a", HOURLY, tidy, 60), shape)
    assert (error.index, error.name) == (1, None)
    assert error.reason == (
        f"must be a Cron or a tuple (name, expression, handler, retry_delay), not {type(shape).__name__}"
    )


@pytest.mark.parametrize("shape", [(), ("a",), ("a", HOURLY, tidy), ("a", HOURLY, tidy, 60, 1)])
def test_a_tuple_has_four_parts(shape: tuple[object, ...]) -> None:
    error = refusal(shape)
    assert (error.index, error.name) == (0, None)
    assert error.reason == f"must have 4 parts (name, expression, handler, retry_delay), not {len(shape)}"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (None, "name must be text, not NoneType"),
        (5, "name must be text, not int"),
        (b"a", "name must be text, not bytes"),
        ("", "name must not be empty"),
        (" \t", "name must not be empty"),
        ("a\0b", "name must not contain the NUL character"),
        ("\ud800", "name is not valid Unicode text"),
        ("ä" * 129, "name must not be longer than 256 bytes"),
    ],
)
def test_a_name_is_text_that_can_be_a_tag(name: object, reason: str) -> None:
    error = refusal(("fine", HOURLY, tidy, 1), (name, HOURLY, tidy, 1))
    assert (error.index, error.reason) == (1, reason)
    assert error.name == (name if isinstance(name, str) else None)


def test_the_longest_name_is_accepted() -> None:
    assert checked([("ä" * 128, HOURLY, tidy, 1)])


def test_a_name_stands_once() -> None:
    with pytest.raises(DuplicateRegistration) as raised:
        checked([("a", HOURLY, tidy, 1), ("b", HOURLY, tidy, 1), Cron("a", HOURLY, tidy, 1)])
    assert raised.value.name == "a"
    assert checked([("a", HOURLY, tidy, 1), ("A", HOURLY, tidy, 1), (" a", HOURLY, tidy, 1)])


@pytest.mark.parametrize(
    ("expression", "field"), [("60 * * * *", "minute"), ("@daily", "expression"), (None, "expression")]
)
def test_a_wrong_expression_is_reported_with_its_cause(expression: object, field: str) -> None:
    error = refusal(("fine", HOURLY, tidy, 1), ("a", expression, tidy, 1))
    assert (error.index, error.name) == (1, "a")
    assert isinstance(error.__cause__, InvalidCronExpression)
    assert (error.__cause__.expression, error.__cause__.field) == (expression, field)
    assert error.__cause__.reason in error.reason


@pytest.mark.parametrize(
    ("delay", "reason"),
    [
        (-1, "retry_delay must not be negative, got -1"),
        (timedelta(seconds=-1), "retry_delay must not be negative, got -1 day, 23:59:59"),
        (float("nan"), "retry_delay must not be NaN"),
        (float("inf"), "retry_delay is too long: inf; at most 292 years are allowed"),
        ("60", "retry_delay is written as 250ms, 10s, 10m, 1h30m or 2d, got '60'"),
        (None, "retry_delay must be a timedelta, seconds or a text such as '10m', not NoneType"),
        (True, "retry_delay must be a timedelta, seconds or a text such as '10m', not bool"),
    ],
)
def test_a_delay_is_a_duration(delay: object, reason: str) -> None:
    error = refusal(("a", HOURLY, tidy, delay))
    assert (error.index, error.name, error.reason) == (0, "a", reason)
    assert isinstance(error.__cause__, ConfigError)


def test_no_delay_at_all_is_a_delay() -> None:
    assert checked([("a", HOURLY, tidy, 0)])[0].retry_delay_ms == 0


def test_parts_are_judged_in_order() -> None:
    good = ("a", HOURLY, tidy, 1)
    assert refusal((5, "x", 5, -1)).reason.startswith("name")
    assert refusal(("a", "x", 5, -1)).reason.startswith("handler")
    assert refusal(good, ("a", "x", 5, -1)).reason.startswith("handler")
    with pytest.raises(DuplicateRegistration):
        checked([good, ("a", "x", tidy, -1)])
    assert "expression" in refusal(good, ("b", "x", tidy, -1)).reason
    assert refusal(good, ("b", HOURLY, tidy, -1)).reason.startswith("retry_delay")


def test_registrations_are_judged_in_order() -> None:
    assert refusal(("a", "x", tidy, 1), (5,)).index == 0


ANYTHING = st.one_of(st.none(), st.integers(), st.text(max_size=3), st.floats(), st.just(tidy), st.binary(max_size=2))
PARTS = st.tuples(
    st.one_of(st.sampled_from("ab"), ANYTHING),
    st.one_of(st.just(HOURLY), ANYTHING),
    st.one_of(st.just(tidy), ANYTHING),
    st.one_of(st.just(60), ANYTHING),
)


@given(st.one_of(ANYTHING, st.lists(st.one_of(PARTS, ANYTHING, st.tuples(ANYTHING, ANYTHING)), max_size=4)))
def test_whatever_is_declared_is_good_or_a_config_error(declared: object) -> None:
    try:
        good = checked(declared)
    except ConfigError:
        return
    assert isinstance(declared, list | tuple)
    assert [one.name for one in good] == [one[0] for one in declared]


# Handlers


class Callable:
    def __call__(self) -> None: ...


class Demanding:
    def __call__(self, path: str) -> None: ...


def with_defaults(path: str = "a", *rest: str, **more: str) -> None: ...


@pytest.mark.parametrize(
    "handler",
    [tidy, with_defaults, lambda: None, Callable(), functools.partial(print, "x"), print, time.time, Callable],
)
def test_anything_callable_without_arguments_is_a_handler(handler: object) -> None:
    assert handler_refusal(handler) is None


def needs_one(path: str) -> None: ...


def needs_keyword(*, path: str) -> None: ...


def yields() -> Iterator[int]:
    yield 1


async def yields_slowly() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (None, "handler must be a task or a callable without arguments, not NoneType"),
        ("tidy", "handler must be a task or a callable without arguments, not str"),
        (needs_one, "handler must need no arguments: missing a required argument: 'path'"),
        (needs_keyword, "handler must need no arguments: missing a required argument: 'path'"),
        (Demanding(), "handler must need no arguments: missing a required argument: 'path'"),
        (yields, "handler must be a plain function or a coroutine function, not a generator"),
        (yields_slowly, "handler must be a plain function or a coroutine function, not a generator"),
    ],
)
def test_an_unusable_handler_is_refused_with_the_reason(handler: object, reason: str) -> None:
    said = handler_refusal(handler)
    assert said is not None
    assert said.replace("missing a required keyword-only argument", "missing a required argument") == reason
    assert refusal(("a", HOURLY, handler, 1)).reason == said


def test_a_task_needs_no_arguments_besides_its_context() -> None:
    domain = Domain("demo")

    @domain.task
    async def plain() -> None: ...

    @domain.task
    async def with_context(ctx: Context) -> None: ...

    @domain.task
    async def demanding(ctx: Context, path: str) -> None: ...

    assert handler_refusal(plain) is None
    assert handler_refusal(with_context) is None
    assert handler_refusal(with_context.options(priority=1)) is None
    said = handler_refusal(demanding)
    assert said is not None
    assert said.startswith("handler must need no arguments: ")
    assert "path" in said
