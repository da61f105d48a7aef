"""The result of ``snapshot``: the state of a scheduler at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from taskmill.model.cron import RunOutcome
from taskmill.model.records import TaskRecord
from taskmill.model.settings import RateLimit


class GroupSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The settings and load of a group; ungrouped tasks are the group ``""``."""

    name: str
    weight: float
    cap: int | None
    min_slots: int
    rate: RateLimit | None
    slots: int
    """Its current share of the slots."""
    running: int
    pending: int
    paused: bool
    paused_until: datetime | None
    """When a timed pause ends; ``None`` if it is not paused, or paused until it is resumed."""
    next_priority: int | None
    """The effective priority of its next task."""


class RateSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A rate limit of a group or a task type; ``permits`` tasks may start now."""

    kind: str
    name: str
    rate: RateLimit
    permits: int


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring series or a cron task.

    ``task_id`` is the active occurrence. A series always has one, which is due at ``next_run`` or already running. A
    cron task has one from its firing until that has succeeded or was given up.
    """

    type: str
    key: str | None
    every: timedelta | None
    """The interval of a series; ``None`` for cron tasks."""
    next_run: datetime | None
    """When it runs next; for a cron task its next occurrence, or its retry if that comes first."""
    task_id: int | None
    runs: int
    max_runs: int | None
    paused: bool
    cron: str | None = None
    """The name of the cron task."""
    expression: str | None = None
    """The cron expression, as declared."""
    last_run: datetime | None = None
    """When its last attempt started."""
    last_outcome: RunOutcome | None = None
    """How its last finished attempt ended."""


class NodeSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler that dispatches, or that died while it did. An SQLite file has at most one, PostgreSQL any number.

    Instants are by the clock of the database server; for a file, by the clock of this machine.
    """

    id: int | None
    """Its number in the cluster; ``None`` for an SQLite file."""
    name: str
    """Host and process."""
    is_here: bool
    """True if it is this scheduler."""
    is_alive: bool
    """False if it sent no heartbeat for a whole lease; its tasks return to the queue."""
    since: datetime
    """When it began to dispatch."""
    seen_at: datetime
    """When it sent its last heartbeat."""
    slots: int
    """The most tasks it may run at once; 0 until it has published the number."""
    running: Sequence[int]
    """The ids of the tasks it runs, all of which are in ``Snapshot.running``."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a scheduler. ``counts`` maps every status and ending to its number of tasks."""

    running: Sequence[TaskRecord]
    counts: Mapping[str, int]
    groups: Mapping[str, GroupSnapshot]
    unhandled: Mapping[str, int]
    """The task types that have no handler on any dispatching node, with their number of tasks that wait to run.

    These are pending, scheduled, blocked or paused. Tasks that run or wait for their children are not counted.
    """
    paused: bool
    """True if the scheduler itself is paused."""
    paused_groups: Sequence[str]
    paused_domains: Sequence[str]
    rates: Sequence[RateSnapshot]
    pressure: Mapping[str, float]
    """The pressure by source, from 0 to 1. For other processes it is known only while tasks wait for it to fall."""
    schedules: Sequence[Schedule]
    max_concurrency: int
    is_shared: bool
    """True if groups share the slots by weight; otherwise priority is global and groups have no shares."""
    dispatching: bool
    """True if this scheduler dispatches."""
    has_dispatcher: bool
    """True if any scheduler dispatches, in this process or another."""
    nodes: Sequence[NodeSnapshot]
    """The dispatching nodes, and dead nodes whose tasks were not yet returned to the queue."""
    next_due: TaskRecord | None = None
    """The scheduled task that is due first."""
