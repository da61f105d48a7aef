"""The shapes of the overview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from taskmill import Activity, GroupSnapshot, HistoryRecord, NodeSnapshot, TaskRecord
from taskmill.web.shapes.basic import PageAnswer


class Paused(PageAnswer):
    """What is paused."""

    scheduler: bool
    groups: Sequence[str]
    domains: Sequence[str]


class RecentErrors(PageAnswer):
    """The tasks that failed in the last hour: how many, and the latest."""

    count: int
    latest: Sequence[HistoryRecord]
    """At most ten, the latest ending first."""


class OverviewAnswer(PageAnswer):
    """The state of the store on one page."""

    at: datetime
    counts: Mapping[str, int]
    """The number of tasks in every state."""
    running: Sequence[TaskRecord]
    """Running tasks with progress and eta, oldest first, at most 100; ``counts`` has their number."""
    groups: Sequence[GroupSnapshot]
    """The groups with the most running and waiting tasks, at most 100."""
    pressure: Mapping[str, float]
    unhandled: Mapping[str, int]
    """Task types without a handler on any node, with their number of pending, scheduled, blocked and paused tasks."""
    paused: Paused
    nodes: Sequence[NodeSnapshot]
    max_concurrency: int
    is_shared: bool
    is_dispatching: bool
    """True if the scheduler behind this page dispatches: only then can it change ``max_concurrency``."""
    has_dispatcher: bool
    hour: Activity
    """The last hour, by minute."""
    recent: Activity | None
    """The last 2, 5, 15 or 60 minutes, in steps of 5 to 60 seconds, if they contain every ending in history."""
    day: Activity
    """The last day, by half hour."""
    errors: RecentErrors
