"""Judging a list of declared cron tasks, in order, before anything is stored.

Each is judged by its shape, its name, what it calls, whether the name was there before, its expression and its
delay; the first thing that is wrong is an error that says where and what.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from taskmill.errors import ConfigError, DuplicateRegistration, InvalidCronExpression, InvalidRegistration
from taskmill.model.cron import Cron
from taskmill.model.durations import milliseconds
from taskmill.model.tags import LONGEST_VALUE
from taskmill.policy.cron.expression import CronExpression

_PARTS = 4
_SHAPE = "(name, expression, handler, retry_delay)"
Refusal = Callable[[object], str | None]
"""Why a handler cannot be called by the clock, or ``None``. What a handler is, is known elsewhere."""


class Registration(NamedTuple):
    """A declared cron task that was found good."""

    name: str
    expression: CronExpression
    handler: Callable[..., Any]
    retry_delay_ms: int


def checked_registrations(registrations: object, refusal: Refusal) -> tuple[Registration, ...]:
    """All of them, or an error about the first that is wrong."""
    if not isinstance(registrations, list | tuple):
        raise ConfigError(f"registrations must be a list or tuple of Cron, not {type(registrations).__name__}")
    good: dict[str, Registration] = {}
    for index, given in enumerate(cast("Sequence[object]", registrations)):
        one = _checked(index, given, good, refusal)
        good[one.name] = one
    return tuple(good.values())


def _checked(index: int, given: object, earlier: dict[str, Registration], refusal: Refusal) -> Registration:
    name, expression, handler, retry_delay = _parts(index, given)
    wrong = _wrong_name(name)
    if wrong is not None:
        raise InvalidRegistration(index, name if isinstance(name, str) else None, wrong)
    name = cast("str", name)
    wrong = refusal(handler)
    if wrong is not None:
        raise InvalidRegistration(index, name, wrong)
    if name in earlier:
        raise DuplicateRegistration(name)
    try:
        read = CronExpression.parse(cast("str", expression))
    except InvalidCronExpression as error:
        raise InvalidRegistration(index, name, str(error)) from error
    try:
        retry_delay_ms = milliseconds(retry_delay, "retry_delay")
    except ConfigError as error:
        raise InvalidRegistration(index, name, str(error)) from error
    return Registration(name, read, cast("Callable[..., Any]", handler), retry_delay_ms)


def _parts(index: int, given: object) -> tuple[object, object, object, object]:
    if isinstance(given, Cron):
        return given.name, given.expression, given.handler, given.retry_delay
    if not isinstance(given, tuple):
        raise InvalidRegistration(index, None, f"must be a Cron or a tuple {_SHAPE}, not {type(given).__name__}")
    parts = cast("tuple[object, ...]", given)
    if len(parts) != _PARTS:
        raise InvalidRegistration(index, None, f"must have 4 parts {_SHAPE}, not {len(parts)}")
    name, expression, handler, retry_delay = parts
    return name, expression, handler, retry_delay


def _wrong_name(name: object) -> str | None:
    """A name is the value of a tag and part of the name of a task type, so it must be fit for both."""
    if not isinstance(name, str):
        return f"name must be text, not {type(name).__name__}"
    if not name.strip():
        return "name must not be empty"
    if "\0" in name:
        return "name must not contain the NUL character"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "name is not valid Unicode text"
    return f"name must not be longer than {LONGEST_VALUE} bytes" if size > LONGEST_VALUE else None
