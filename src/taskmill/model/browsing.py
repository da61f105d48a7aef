"""The results of ``page``, ``details``, ``activity`` and ``machines``: bounded answers about a store of any size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from taskmill.model.filters import Filters
from taskmill.model.io_budget import IoBudget
from taskmill.model.records import Dependency, HistoryRecord, TaskRecord

TaskSort = Literal["newest", "oldest"]
SuggestField = Literal["type", "domain", "group", "state", "tag", "key"]

MOST_ON_A_PAGE = 10_000
MOST_SEARCHED = 10_000
"""How many tasks one page may search, however few of them match."""
MOST_SUGGESTED = 100


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of tasks, active and ended.

    A page searches a bounded number of tasks. If the search stopped before the page was full, ``is_complete`` is False
    and the search continues with ``next``.
    """

    tasks: Sequence[TaskRecord | HistoryRecord]
    next: int | None
    """The ``before`` (with ``sort="oldest"`` the ``after``) of the following page; ``None`` after the last page."""
    searched: int
    """How many tasks were searched."""
    is_complete: bool
    """False if the search stopped early, so that the page may have fewer tasks than match."""


class ActivityPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that ended within one step. Times are of a sample of them; ``None`` if none of them had started."""

    at: datetime
    """When the step begins."""
    ended: Mapping[str, int]
    """The number of tasks by ending; endings that did not occur are missing."""
    wait_p50: timedelta | None
    """The median time from being due to the first start."""
    wait_p95: timedelta | None
    run_p50: timedelta | None
    """The median duration of the last attempt."""
    run_p95: timedelta | None


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """What ended in a period, in equal steps, from history. Pruned tasks are missing."""

    since: datetime
    until: datetime
    step: timedelta
    points: Sequence[ActivityPoint]
    ended: Mapping[str, int]
    """The number of tasks by ending, over the whole period."""
    wait_p50: timedelta | None
    wait_p95: timedelta | None
    run_p50: timedelta | None
    run_p95: timedelta | None
    sampled: int
    """How many tasks the times are computed from."""


class PriorityStep(msgspec.Struct, frozen=True, kw_only=True):
    """From ``at`` on, the task has this effective priority if it still waits."""

    at: datetime
    priority: int


class TaskDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is stored about one task, beside its explanation."""

    task: TaskRecord | HistoryRecord
    saved: Mapping[str, Any]
    """The state that the handler saved; empty if it saved none."""
    priorities: Sequence[PriorityStep]
    """How its effective priority grows with aging, past steps included; one step without aging or after the end."""
    depends_on: Sequence[Dependency]
    """At most 100 direct dependencies."""
    dependents: Sequence[Dependency]
    """At most 100 tasks that depend on it directly."""
    linked: Mapping[int, TaskRecord | HistoryRecord]
    """The records of both, by id; tasks pruned from history are missing."""
    children: Mapping[str, int]
    """The number of its children by status and ending."""
    same_key: Sequence[TaskRecord | HistoryRecord]
    """The latest tasks of its type with its key, newest first, at most 20; empty without a key."""
    replaced: Sequence[int]
    """The tasks whose place it took, the oldest first."""
    replaced_by: Sequence[int]
    """The tasks that took its place, one after the other."""
    series_id: int | None
    """The number of the recurring series that it belongs to."""


class MachineSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The load and capacity of the machine of a dispatching node, as far as it measures them."""

    node: int | None
    is_here: bool
    pressures: Mapping[str, float]
    """The pressure by source, from 0 to 1."""
    limits: Sequence[tuple[int, float]]
    """Tasks of this priority or a less urgent one wait while the pressure is above the limit."""
    capacity: IoBudget | None
    """Bytes per second that were declared or learned; ``None`` if nothing is known."""
    used: IoBudget | None
    """Bytes per second at the last reading; ``None`` for other processes, or without ``resources``."""
    cpu: float | None


# Between verbs and store


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which page to read. ``filters`` has the filters, the cut and the limit."""

    filters: Filters
    part: Literal["active", "ended"] | None = None
    is_oldest_first: bool = False
    most_searched: int

    @property
    def is_by_end(self) -> bool:
        """True if the page is ordered by the time of the end."""
        filters = self.filters
        return self.part == "ended" and not filters.tags and filters.key is None and filters.parent is None


class SpanOfHistory(msgspec.Struct, frozen=True):
    """What ended in one span of time."""

    ended: dict[str, int]
    times: list[tuple[int, int | None, int | None]]
    """``(ended_at, wait, duration)`` in milliseconds, of a sample."""


class Kept(msgspec.Struct, frozen=True):
    """The stored values of a task that its record does not show."""

    saved: Any
    series_id: int | None
    children: dict[str, int]
    replaced: list[int]
    replaced_by: list[int]
    aging: tuple[int, int] | None
    """The stored urgency and when aging began, of an active task."""
    depends_on: list[Dependency]
    dependents: list[Dependency]
    linked: dict[int, TaskRecord | HistoryRecord]
    same_key: Sequence[TaskRecord | HistoryRecord]
