"""Words a handler raises to say how its attempt ended. Any other exception is a failure that follows the policy."""

from __future__ import annotations

from taskmill.model.durations import Duration, optional_milliseconds


class RetryLater(Exception):
    """This attempt failed, try again: after ``after`` if given, else by the policy."""

    def __init__(self, message: str = "", after: Duration | None = None) -> None:
        super().__init__(message)
        self.after = after
        self.after_ms = optional_milliseconds(after, "after")


class GiveUp(Exception):
    """This task cannot succeed, do not retry."""
