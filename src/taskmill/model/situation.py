"""What is known about a task that waits, and about what else there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from taskmill.model.controls import Controls
from taskmill.model.durations import Instant
from taskmill.model.io_budget import IoBudget
from taskmill.model.machine import NodeMachine
from taskmill.model.status import Status


class Situation(msgspec.Struct, array_like=True):
    """What is stored about a task that can hold it back."""

    id: int
    type: str
    group: str
    priority: int
    urgency: int
    status: Status
    stop: str | None
    created_at: Instant
    queued_at: Instant
    renewed_at: Instant | None
    due_at: Instant | None
    expires_at: Instant | None
    started_at: Instant | None
    attempt: int
    last_error: str | None
    gate_id: int | None
    held: bool
    parent_id: int | None
    max_siblings: int | None
    dependencies: Sequence[int]
    children: int
    series_paused: bool
    preempted: int
    paused_at: Instant | None
    interrupted: bool
    clock_from: Instant
    """Where its time-to-live counts from."""
    place_id: int
    """The task whose place in the queue it has; else its own id."""
    may_expire: bool
    """True if it ends when its deadline has passed."""
    io: str | None = None

    @property
    def aged_from(self) -> int:
        return self.queued_at if self.renewed_at is None else self.renewed_at


class Surroundings(msgspec.Struct, kw_only=True):
    """What else there is."""

    running: Counter[tuple[str, str]]
    """By group and type."""
    waiting: Counter[tuple[str, str]]
    """By group and type."""
    ahead: int = 0
    recent: tuple[int, int | None, int | None] = (0, None, None)
    """How many tasks ended lately, and when the first and the last of them did."""
    is_dispatching: bool = True
    unknown_types: Collection[str] = ()
    """Those of all these types that no handler is registered for where tasks are run."""
    budget: IoBudget | None = None
    """What the task is expected to move."""
    budgets_by_node: Mapping[int | None, Sequence[IoBudget]] = msgspec.field(
        default_factory=dict["int | None", "Sequence[IoBudget]"]
    )
    """What those are expected to move that run, by where they do."""
    machines: Sequence[NodeMachine] = ()
    """Of the nodes on which it may start."""

    def budgets_on(self, node: int | None) -> Sequence[IoBudget]:
        return self.budgets_by_node.get(node, ())


class GroupLoad(NamedTuple):
    """How the groups stand."""

    running: Counter[tuple[str, str]]
    """By group and type."""
    waiting: Counter[tuple[str, str]]
    """By group and type."""
    next_priority: Mapping[str, int]
    """The effective priority of the task that a group would start next."""
    controls: Controls
