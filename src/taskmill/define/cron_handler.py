"""Check the handler of a cron task: it must be a task or a callable that needs no arguments."""

from __future__ import annotations

import inspect
from typing import Any, cast

from taskmill.define.task import Task
from taskmill.errors import SubmissionError

_NOT_BY_THE_CLOCK = frozenset({"run_after", "run_at", "every", "max_runs", "depends_on", "ref"})


def handler_refusal(handler: object) -> str | None:
    """Return why ``handler`` cannot be the handler of a cron task, or ``None``."""
    if isinstance(handler, Task):
        task = cast("Task[..., Any]", handler)
        try:
            options = task.prepare().options
        except SubmissionError as wrong:
            return f"handler must need no arguments: {wrong}"
        strange = sorted(_NOT_BY_THE_CLOCK.intersection(options))
        return f"handler must not have the option {strange[0]}: the expression says when it runs" if strange else None
    if not callable(handler):
        return f"handler must be a task or a callable without arguments, not {type(handler).__name__}"
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        return "handler must be a plain function or a coroutine function, not a generator"
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return None  # functions written in C may have no signature; the call will show
    try:
        signature.bind()
    except TypeError as wrong:
        return f"handler must need no arguments: {wrong}"
    return None
