"""Exceptions that a handler raises to control retries. Any other exception is a failure that follows the policy."""

from __future__ import annotations

from taskmill.model.durations import Duration, optional_milliseconds


class RetryLater(Exception):
    """Fail this attempt and retry: after ``after`` if given, else by the policy."""

    def __init__(self, message: str = "", after: Duration | None = None) -> None:
        super().__init__(message)
        self.after = after
        self.after_ms = optional_milliseconds(after, "after")


class GiveUp(Exception):
    """End the task as failed, without a retry."""
