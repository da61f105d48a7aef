"""A submission: what a caller asks for, before defaults are applied and anything is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, Unpack

from taskmill.errors import SubmissionError
from taskmill.model.durations import Duration
from taskmill.model.options import checked_options
from taskmill.model.retry import Retry


class CallOptions(TypedDict, total=False):
    """The options of one call; they win over the task type's, the domain's and the scheduler's."""

    key: str | bool | None
    priority: int
    group: str | None
    ttl: Duration | None
    run_after: Duration
    run_at: datetime
    on_duplicate: str
    tags: Mapping[str, str]
    label: str | None
    retry: Retry
    timeout: Duration | None


CALL_OPTIONS = frozenset(CallOptions.__annotations__)


@dataclass(frozen=True, slots=True, init=False)
class Submission:
    """One task to be stored: ``Submission("domain::task", {"path": "a"}, priority=64)``.

    ``task.prepare(...)`` builds one with the handler's own signature; building it by name serves callers that do
    not import the handler. ``payload`` maps parameter names to values.
    """

    type: str
    payload: Mapping[str, Any]
    options: Mapping[str, Any]
    encoded: str | None

    def __init__(self, type: str, payload: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]) -> None:
        if not isinstance(type, str) or not type:
            raise SubmissionError(f"type must be a task type's name such as 'sync::transfer', got {type!r}")
        if payload is not None and not isinstance(payload, Mapping):
            raise SubmissionError(f"payload must map parameter names to values, not {payload.__class__.__name__}")
        self._fill(type, payload or {}, checked_options(options, CALL_OPTIONS, SubmissionError), None)

    @classmethod
    def prepared(cls, type: str, payload: Mapping[str, Any], options: Mapping[str, Any], encoded: str) -> Submission:
        """A submission whose payload is encoded and whose options are checked already."""
        submission = object.__new__(cls)
        submission._fill(type, payload, options, encoded)
        return submission

    def _fill(self, type: str, payload: Mapping[str, Any], options: Mapping[str, Any], encoded: str | None) -> None:
        object.__setattr__(self, "type", type)
        object.__setattr__(self, "payload", payload)
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "encoded", encoded)
