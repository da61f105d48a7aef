"""The result of ``explain``: why a task waits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from taskmill.model.status import Ending, Status

Reason = Literal[
    "not_due",
    "dependency",
    "replaced_task",
    "children",
    "siblings",
    "stopping",
    "scheduler_paused",
    "domain_paused",
    "group_paused",
    "series_paused",
    "preempted",
    "no_dispatcher",
    "no_handler",
    "group_cap",
    "domain_cap",
    "group_rate",
    "type_rate",
    "pressure",
    "io",
    "slots",
    "share",
    "ahead",
]
"""The stable words for the reasons that can hold a task back."""


class Hold(msgspec.Struct, frozen=True):
    """One reason that keeps a task from starting: a stable word, and a sentence with numbers."""

    reason: Reason
    detail: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a task waits. ``str()`` reads as a sentence.

    ``ahead`` counts the tasks that would start before it now. ``estimated_start`` is an estimate from recent endings,
    or a known due time; ``None`` if neither exists.
    """

    task_id: int
    status: Status | Ending
    summary: str
    holds: Sequence[Hold]
    effective_priority: int
    ahead: int
    expires_at: datetime | None
    estimated_start: datetime | None

    def __str__(self) -> str:
        return self.summary
