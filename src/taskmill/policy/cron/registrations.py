"""Check a list of declared cron tasks, in order, before anything is stored.

Each is checked for its shape, name, handler, duplicate name, expression and delay, in this order. The first mistake
raises an error that names the position and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from taskmill.errors import ConfigError, DuplicateRegistration, InvalidCronExpression, InvalidRegistration
from taskmill.model.cron import Cron
from taskmill.model.durations import milliseconds
from taskmill.model.options import LONGEST_TAG_VALUE
from taskmill.policy.cron.expression import CronExpression

_PARTS = 4
_SHAPE = "(name, expression, handler, retry_delay)"
Refusal = Callable[[object], str | None]
"""Returns why a handler cannot be a cron handler, or ``None``. Injected, because this layer does not know handlers."""


class Registration(NamedTuple):
    """A declared cron task that passed all checks."""

    name: str
    expression: CronExpression
    handler: Callable[..., Any]
    retry_delay_ms: int


def checked_registrations(registrations: object, refusal: Refusal) -> tuple[Registration, ...]:
    """Return all registrations, or raise an error about the first wrong one."""
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
    """Return why a name is not valid, or ``None``: it must be a valid tag value and part of a task type's name."""
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
    return f"name must not be longer than {LONGEST_TAG_VALUE} bytes" if size > LONGEST_TAG_VALUE else None
