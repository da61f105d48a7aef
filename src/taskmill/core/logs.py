"""Loggers that never raise, and log records with the fields of the task as attributes.

Logging filters, handlers, formatters and record factories are code of the program, and some of them raise. taskmill
logs in the middle of other work: between the claim of a task and its verdict, in the thread of a handler, while a turn
is applied. A logging error must not end that work.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Mapping, MutableMapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from taskmill.core.exits import ends_program
from taskmill.model.exceptions import GiveUp, RetryLater, exception_text

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter


class SafeLogger(_Adapter):
    """A logger whose errors are printed to standard error."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Keep the caller's ``extra``; the base class would overwrite it."""
        return msg, kwargs

    def log(
        self,
        level: int,
        msg: object,
        *args: object,
        exc_info: Any = None,
        stack_info: bool = False,
        stacklevel: int = 1,
        extra: Mapping[str, object] | None = None,
        **_kwargs: object,
    ) -> None:
        try:
            self.logger.log(
                level,
                msg,
                *args,
                exc_info=exc_info,
                stack_info=stack_info,
                # Skip this frame.
                stacklevel=stacklevel + 1,
                extra=extra,
            )
        except BaseException as wrong:
            if ends_program(wrong):
                raise
            _report()


def _report() -> None:
    """Print the error that logging raised, as ``logging.Handler.handleError`` does."""
    if logging.raiseExceptions and sys.stderr:
        try:
            sys.stderr.write("--- Logging error ---\n" + traceback.format_exc())
        except BaseException as wrong:
            # The program may have replaced the stream, the exception's own methods may raise anything, and there is no
            # other place to report.
            if ends_program(wrong):
                raise


logger = SafeLogger(logging.getLogger("taskmill"))
task_logger = SafeLogger(logging.getLogger("taskmill.task"))
cron_logger = SafeLogger(logging.getLogger("taskmill.cron"))
resources_logger = SafeLogger(logging.getLogger("taskmill.resources"))


class TaskFields(Protocol):
    """The fields of a task that log records show. A task without an attempt has no ``attempt``."""

    @property
    def id(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def group(self) -> str: ...


class AttemptFields(TaskFields, Protocol):
    """The fields of a task with a live attempt."""

    @property
    def attempt(self) -> int: ...


def log_exception(wrong: BaseException, traceback: TracebackType | None, task: AttemptFields) -> None:
    """Log the exception of a handler, with this traceback unless it is ``RetryLater`` or ``GiveUp``."""
    # Imported here, so that a command that only reads starts without loading asyncio.
    import asyncio

    if isinstance(wrong, asyncio.CancelledError):
        return
    on_purpose = isinstance(wrong, RetryLater | GiveUp)
    logger.log(
        logging.INFO if on_purpose else logging.WARNING,
        "task %d (%s) attempt %d raised %s",
        task.id,
        task.type,
        task.attempt,
        exception_text(wrong),
        exc_info=None if on_purpose else (type(wrong), wrong, traceback),
        extra=about(task),
    )


def about(task: TaskFields) -> dict[str, object]:
    """Return the extra attributes of a log record about one task, as ``TaskLogFilter`` names them."""
    attempt = getattr(task, "attempt", None)
    return {"task_id": task.id, "task_type": task.type, "attempt": attempt, "group": task.group}
