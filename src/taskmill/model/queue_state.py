"""The state of a queue at one instant, with everything that decides when its tasks start. A simulation begins with it.

All instants and durations are in milliseconds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from taskmill.model.controls import Bucket, Controls, Scope
from taskmill.model.cron import CronState
from taskmill.model.machine import UNKNOWN_CAPACITY, Capacity, MovedIo
from taskmill.model.settings import Retry
from taskmill.model.status import Ending, OnDependencyFailure, Status
from taskmill.model.task import Lane, Place


class QueuedTask(msgspec.Struct, array_like=True, gc=False):
    """An active task; the order of the fields is that of the statement ``queue_state``."""

    id: int
    type: str
    group: str
    priority: int
    urgency: int
    status: Status
    created_at: int
    queued_at: int
    renewed_at: int | None
    due_at: int | None
    expires_at: int | None
    started_at: int | None
    paused_at: int | None
    clock_from: int
    place_id: int
    retries: int
    may_expire: bool
    io: str | None
    gate_id: int | None
    parent_id: int | None
    held: bool
    series_id: int | None
    cron: str | None
    on_dependency_failure: OnDependencyFailure | None
    overrides: str | None
    children: int
    """The number of its children that have not ended."""
    stop: str | None = None

    @property
    def aged_from(self) -> int:
        return self.queued_at if self.renewed_at is None else self.renewed_at

    @property
    def lane(self) -> Lane:
        return Lane(self.group, self.urgency, self.type, self.renewed_at is not None)

    @property
    def place(self) -> Place:
        return Place(self.queued_at, self.place_id, self.id, self.renewed_at, self.io)


class QueuedSeries(msgspec.Struct, array_like=True, gc=False):
    """A recurring series."""

    id: int
    every_ms: int
    first_at: int
    due_at: int
    ttl_ms: int | None
    runs: int
    max_runs: int | None
    paused: bool


class QueuedCron(msgspec.Struct):
    """A cron task."""

    state: CronState
    template: QueuedTask
    """What a firing looks like."""


class EndedRun(NamedTuple):
    """A task that ran and ended: its last attempt's duration, and how often it had failed before."""

    group: str
    ending: Ending
    duration_ms: int
    retries: int


class PastTask(msgspec.Struct, array_like=True, gc=False):
    """An ended task, to be replayed."""

    id: int
    type: str
    group: str
    priority: int
    created_at: int
    due_at: int | None
    expires_at: int | None
    duration_ms: int
    io: str | None


class Turns(msgspec.Struct, frozen=True):
    """Copies of what only a dispatcher has in memory: the turns of groups and the permits of rate limits."""

    round_robin: Any
    virtual_time: Any
    buckets: Mapping[Scope, Bucket]


class WholeQueue(msgspec.Struct, kw_only=True):
    """Everything that decides when the tasks of a queue start."""

    now: int
    tasks: Sequence[QueuedTask]
    waits_for: Sequence[tuple[int, int]] = ()
    """Open dependencies: the dependent and the task that it waits for."""
    series: Sequence[QueuedSeries] = ()
    crons: Sequence[QueuedCron] = ()
    controls: Controls
    recent: Mapping[str, Sequence[EndedRun]] = msgspec.field(default_factory=dict[str, Sequence[EndedRun]])
    """The last runs of each task type."""
    moved: Mapping[str, MovedIo] = msgspec.field(default_factory=dict[str, MovedIo])
    capacity: Capacity = UNKNOWN_CAPACITY
    retries: Mapping[str, Retry] = msgspec.field(default_factory=dict[str, Retry])
    """The retry policy of each task type, as far as it is known here."""
    unknown_types: frozenset[str] = frozenset()
    """Task types without a handler on any dispatching node."""
    turns: Turns | None = None
    """Set if this process dispatches the queue."""
