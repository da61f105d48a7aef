"""Write ``logging`` records with the task's id and type as attributes."""

from __future__ import annotations

import asyncio
import logging

from taskmill.core.logs import cron_logger, logger
from taskmill.model.attempt import GiveUp, RetryLater, exception_text

__all__ = ["about", "cron_logger", "log_exception", "logger"]


def log_exception(wrong: BaseException, task_id: int, type: str, attempt: int) -> None:
    """Log the exception of a handler, with its traceback unless it is ``RetryLater`` or ``GiveUp``."""
    if isinstance(wrong, asyncio.CancelledError):
        return
    on_purpose = isinstance(wrong, RetryLater | GiveUp)
    logger.log(
        logging.INFO if on_purpose else logging.WARNING,
        "task %d (%s) attempt %d raised %s",
        task_id,
        type,
        attempt,
        exception_text(wrong),
        exc_info=None if on_purpose else wrong,
        extra=about(task_id, type),
    )


def about(task_id: int, type: str) -> dict[str, object]:
    """Return the extra attributes of a log record about one task."""
    return {"task_id": task_id, "task_type": type}
