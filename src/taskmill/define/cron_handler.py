"""Which handlers a cron task may have: a task, or a callable, that needs no arguments."""

from __future__ import annotations

import inspect
from typing import Any, cast

from taskmill.define.task import Task
from taskmill.errors import SubmissionError

_NOT_BY_THE_CLOCK = frozenset({"run_after", "run_at", "every", "max_runs", "depends_on", "ref"})


def handler_refusal(handler: object) -> str | None:
    """Why the clock cannot call ``handler``, or ``None``."""
    if isinstance(handler, Task):
        task = cast("Task[..., Any]", handler)
        try:
            options = task.prepare().options
        except SubmissionError as wrong:
            return f"handler must need no arguments: {wrong}"
        strange = sorted(_NOT_BY_THE_CLOCK.intersection(options))
        return f"handler must not have the option {strange[0]}: the clock says when it runs" if strange else None
    if not callable(handler):
        return f"handler must be a task or a callable without arguments, not {type(handler).__name__}"
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        return "handler must be a function that is done when it returns, not one that yields"
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return None  # what is written in C may not tell; the call will
    try:
        signature.bind()
    except TypeError as wrong:
        return f"handler must need no arguments: {wrong}"
    return None
