"""``Scheduler(middleware=[...])``: functions that return an async context manager to run around each attempt."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import cast

from taskmill.define.context import Context
from taskmill.errors import ConfigError

Middleware = Callable[[Context], AbstractAsyncContextManager[object]]


class HandlerError(Exception):
    """The exception of a handler in a worker process, as middleware sees it: its text and the name of its class."""

    def __init__(self, error: str, exception: str) -> None:
        super().__init__(error)
        self.exception = exception


def checked_middleware(given: object) -> tuple[Middleware, ...]:
    """Return the middleware of a scheduler, or raise ``ConfigError``."""
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise ConfigError(f"middleware must be a list of functions that take a Context, got {given!r}")
    functions = tuple(cast("Iterable[object]", given))
    for place, function in enumerate(functions):
        if not callable(function):
            raise ConfigError(f"middleware[{place}] must be a function that takes a Context, got {function!r}")
        if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
            raise ConfigError(
                f"middleware[{place}] must return an async context manager; "
                f"decorate {getattr(function, '__name__', function)} with contextlib.asynccontextmanager"
            )
    return cast("tuple[Middleware, ...]", functions)
