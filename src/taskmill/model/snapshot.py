"""A picture of the scheduler at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from taskmill.model.cron import RunOutcome
from taskmill.model.rate_limit import RateLimit
from taskmill.model.records import TaskRecord


class GroupSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a group has at work and waiting; ungrouped tasks are the group ``""``."""

    name: str
    weight: float
    cap: int | None
    min_slots: int
    rate: RateLimit | None
    slots: int
    """Its share of the slots, as things are."""
    running: int
    pending: int
    paused: bool
    paused_until: datetime | None
    """When a timed pause ends; ``None`` if it is not paused, or until somebody resumes it."""
    next_priority: int | None
    """The effective priority of the task that it would start next."""


class RateSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A rate limit of a group or a task type: how many tasks may start now."""

    kind: str
    name: str
    rate: RateLimit
    permits: int


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring task, or one that runs by the clock.

    ``task_id`` is the active occurrence. A recurring task always has one, due at ``next_run`` or at work since; a
    cron task has one from when it fires until that has succeeded or was given up.
    """

    type: str
    key: str | None
    every: timedelta | None
    """``None`` for cron tasks."""
    next_run: datetime | None
    """Of a cron task: its next occurrence, or its retry if that comes first."""
    task_id: int | None
    runs: int
    max_runs: int | None
    paused: bool
    cron: str | None = None
    """The name of the cron task."""
    expression: str | None = None
    """When it runs, as it was declared."""
    last_run: datetime | None = None
    """When its last attempt began."""
    last_outcome: RunOutcome | None = None
    """How the last attempt that has ended did so."""


class NodeSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler that dispatches, or did so and died. A file has at most one, a database any number.

    Instants are by the clock of the database, and for a file by that of this machine.
    """

    id: int | None
    """Its number in the cluster; ``None`` where one process dispatches at a time."""
    name: str
    """Host and process."""
    is_here: bool
    """Whether it is this scheduler."""
    is_alive: bool
    """A node that was not seen for the time of a lease is dead; what it ran returns to the queue."""
    since: datetime
    """When it began to dispatch."""
    seen_at: datetime
    """When it last gave a sign of life."""
    slots: int
    """How many tasks it may run at once; 0 until it has said so."""
    running: Sequence[int]
    """The ids of the tasks it runs, all of which are in ``Snapshot.running``."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """``counts`` maps every status and ending to the number of tasks in it."""

    running: Sequence[TaskRecord]
    counts: Mapping[str, int]
    groups: Mapping[str, GroupSnapshot]
    paused: bool
    """Whether the scheduler itself is paused."""
    paused_groups: Sequence[str]
    paused_domains: Sequence[str]
    rates: Sequence[RateSnapshot]
    pressure: Mapping[str, float]
    """By source, from 0 to 1: as it is where this scheduler dispatches; elsewhere while tasks wait for it to fall."""
    schedules: Sequence[Schedule]
    max_concurrency: int
    is_shared: bool
    """Whether groups share the slots by weight; else priority is global and a group has no share of its own."""
    dispatching: bool
    """Whether this scheduler dispatches."""
    has_dispatcher: bool
    """Whether any does, in this process or another."""
    nodes: Sequence[NodeSnapshot]
    """Those that dispatch, and those that died while they did and were not missed yet."""
