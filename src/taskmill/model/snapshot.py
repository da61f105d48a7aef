"""A picture of the scheduler at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from taskmill.model.records import TaskRecord


class GroupSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a group has at work and waiting; ungrouped tasks are the group ``""``."""

    name: str
    running: int
    pending: int


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring task. ``task_id`` is its active occurrence, due at ``next_run`` or at work since."""

    type: str
    key: str | None
    every: timedelta
    next_run: datetime
    task_id: int
    runs: int
    max_runs: int | None
    paused: bool


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """``counts`` maps every status and ending to the number of tasks in it."""

    running: Sequence[TaskRecord]
    counts: Mapping[str, int]
    groups: Mapping[str, GroupSnapshot]
    schedules: Sequence[Schedule]
    max_concurrency: int
    dispatching: bool
