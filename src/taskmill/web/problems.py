"""Errors of the API: the status, a stable word and a sentence for each error that taskmill or a request can cause."""

from __future__ import annotations

from collections.abc import Mapping

from taskmill import (
    ConfigError,
    DuplicateTask,
    InvalidState,
    StoreBusy,
    StoreError,
    StoreMoved,
    TaskmillError,
    TaskNotFound,
    UnknownTaskType,
)


class RequestRefused(Exception):
    """Ends a request with a status, a stable word and a sentence."""

    def __init__(self, status: int, error: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error = error
        self.message = message
        self.headers = dict(headers or {})


_KINDS: tuple[tuple[type[TaskmillError], int, str], ...] = (
    (TaskNotFound, 404, "not_found"),
    (UnknownTaskType, 404, "unknown_type"),
    (DuplicateTask, 409, "duplicate"),
    (InvalidState, 409, "invalid_state"),
    (ConfigError, 422, "invalid"),
    (StoreBusy, 503, "busy"),
    (StoreMoved, 503, "moved"),
    (StoreError, 503, "store"),
)


def refusal_of(wrong: TaskmillError) -> RequestRefused:
    """Return the answer to an error of taskmill."""
    for kind, status, word in _KINDS:
        if isinstance(wrong, kind):
            headers = {"retry-after": "5"} if status == 503 else None
            return RequestRefused(status, word, str(wrong), headers)
    return RequestRefused(422, "refused", str(wrong))
