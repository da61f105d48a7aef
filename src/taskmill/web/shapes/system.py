"""The shapes of the machine, the nodes and the system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta

from taskmill import ErrorGroup, Explanation, IoBudget, MachineSnapshot, NodeSnapshot, TaskRecord
from taskmill.web.shapes.basic import MOST_LISTED, Body, Limit, PageAnswer, Query, Text


class HeldGroup(PageAnswer):
    """The oldest waiting task of a group, since when it waits, and why."""

    group: str
    task_id: int
    type: str
    since: datetime
    waited: float
    """Seconds."""
    explanation: Explanation


class MachineAnswer(PageAnswer):
    """Pressure against limits, what is used and what is left."""

    machines: Sequence[MachineSnapshot]
    budgets: IoBudget
    """The expected IO of all running tasks."""
    running: int
    held: Sequence[HeldGroup]
    """For up to five groups, why their oldest waiting task waits."""


class NodeListQuery(Query):
    """How many nodes and running tasks to list, at most."""

    limit: Limit = MOST_LISTED


class NodeListAnswer(PageAnswer):
    """The dispatching nodes, and dead ones whose tasks were not returned yet."""

    nodes: Sequence[NodeSnapshot]
    running: Sequence[TaskRecord]
    """The tasks that run on them."""


class FindingAnswer(PageAnswer):
    """The result of one check of ``taskmill doctor``."""

    level: Literal["ok", "note", "problem"]
    subject: str
    text: str


class SystemAnswer(PageAnswer):
    """Settings in effect, versions, and the findings of ``taskmill doctor`` without its slow checks."""

    versions: Mapping[str, str]
    store: Mapping[str, Any]
    settings: Mapping[str, Any]
    findings: Sequence[FindingAnswer]
    is_healthy: bool


# Errors


class ErrorQuery(Query):
    """How far back to look."""

    hours: Annotated[float, Meta(gt=0, le=8_760)] = 24.0
    limit: Limit = 100


class ErrorListAnswer(PageAnswer):
    """Failed attempts, grouped by task type, exception and location, the latest group first."""

    groups: Sequence[ErrorGroup]
    total: int


class ErrorRetryBody(Body):
    """The dead letters to return to the queue: those of a group of errors, or of a whole task type."""

    type: Text
    exception: Text | None = None
    location: Text | None = None
    dry_run: bool = False
    """Only count the dead letters, and change nothing."""


class ErrorRetryAnswer(PageAnswer):
    """The dead letters that match, and those that returned to the queue: none with ``dry_run``."""

    count: int
    """A dead letter whose key another task has taken stays a dead letter."""
    ids: Sequence[int]
