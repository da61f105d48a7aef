"""Report a ``task.submit(...)`` that was called where nothing can await it, such as in a ``def`` handler.

Python itself warns about every coroutine that is never awaited, but that warning does not say which task was lost and
what to call instead.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import warnings
from collections.abc import Callable, Coroutine, Generator
from typing import Any, ParamSpec, TypeVar

from taskmill.define import worker_process

P = ParamSpec("P")
R = TypeVar("R")


def on_event_loop() -> bool:
    """True if the calling thread runs an event loop."""
    return asyncio._get_running_loop() is not None


def marked_as_coroutine(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function that returns a coroutine, so that frameworks await it and do not call it in a thread."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return function


class Unawaited(Coroutine[Any, Any, R]):
    """A coroutine of ``submit`` that was created outside an event loop. It warns if it is dropped unawaited."""

    def __init__(self, coroutine: Coroutine[Any, Any, R], task_name: str) -> None:
        self._coroutine = coroutine
        self._task_name = task_name
        caller = sys._getframe(2)
        self._where = caller.f_code.co_filename, caller.f_lineno
        self._warned = caller.f_globals.setdefault("__warningregistry__", {})
        self._is_used = False

    def send(self, value: Any) -> Any:
        self._is_used = True
        return self._coroutine.send(value)

    def throw(self, *thrown: Any) -> Any:
        self._is_used = True
        return self._coroutine.throw(*thrown)

    def close(self) -> None:
        self._is_used = True
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, R]:
        self._is_used = True
        return self._coroutine.__await__()

    def __del__(self) -> None:
        if self._is_used:
            return
        self._coroutine.close()
        file, line = self._where
        if worker_process.is_worker:
            instead = "in a worker process, call ctx.spawn(...) or ctx.spawn_sibling(...)"
        else:
            instead = "outside async code, such as in a def handler, call submit_sync(...)"
        warnings.warn_explicit(
            f"{self._task_name}.submit(...) was never awaited, so no task was stored; {instead}",
            RuntimeWarning,
            file,
            line,
            registry=self._warned,
        )
