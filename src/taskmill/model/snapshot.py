"""A picture of the scheduler at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from taskmill.model.records import TaskRecord


class GroupSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a group has at work and waiting; ungrouped tasks are the group ``""``."""

    name: str
    running: int
    pending: int


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """``counts`` maps every status and ending to the number of tasks in it."""

    running: Sequence[TaskRecord]
    counts: Mapping[str, int]
    groups: Mapping[str, GroupSnapshot]
    max_concurrency: int
    dispatching: bool
