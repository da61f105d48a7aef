"""A picture of the scheduler at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskmill.model.records import TaskRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """What a group has at work and waiting; ungrouped tasks are the group ``""``."""

    name: str
    running: int
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """``counts`` maps every status and ending to the number of tasks in it."""

    running: Sequence[TaskRecord]
    counts: Mapping[str, int]
    groups: Mapping[str, GroupSnapshot]
    max_concurrency: int
    dispatching: bool
