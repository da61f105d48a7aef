"""Why a task waits: the result of ``explain``, and the stored state that it is computed from."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from taskmill.model.controls import Controls
from taskmill.model.durations import Instant
from taskmill.model.io_budget import IoBudget
from taskmill.model.machine import NodeMachine
from taskmill.model.status import Ending, Status

Reason = Literal[
    "not_due",
    "dependency",
    "replaced_task",
    "children",
    "siblings",
    "stopping",
    "scheduler_paused",
    "domain_paused",
    "group_paused",
    "series_paused",
    "preempted",
    "no_dispatcher",
    "no_handler",
    "group_cap",
    "domain_cap",
    "group_rate",
    "type_rate",
    "pressure",
    "io",
    "slots",
    "share",
    "ahead",
]
"""The stable words for the reasons that can hold a task back."""


class Hold(msgspec.Struct, frozen=True):
    """One reason that keeps a task from starting: a stable word, and a sentence with numbers."""

    reason: Reason
    detail: str


WhenStarted = Literal["now", "in_time"]
"""When a remedy starts a task: at once, or before its deadline."""


class Remedy(msgspec.Struct, frozen=True):
    """A change that would start a waiting task: in words, and for ``Scheduler.apply``."""

    text: str
    changes: Mapping[str, Any]
    starts: WhenStarted = "now"
    """``in_time``: not at once, but before its deadline, which it would miss without the change."""

    def __str__(self) -> str:
        return self.text


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a task waits. ``str()`` reads as a sentence.

    ``ahead`` counts the tasks that would start before it now; if ``ahead_is_exact`` is False, there are more than that.
    ``estimated_start`` is a known due time, the median of a few simulations or, if its start is too far away to
    simulate, an estimate from recent endings; ``None`` if none of them exists, or if too many tasks are ahead to count
    them. Eight of ten simulated starts lie between ``earliest_start`` and ``latest_start``; both are ``None`` without a
    simulation.
    """

    task_id: int
    status: Status | Ending
    summary: str
    holds: Sequence[Hold]
    effective_priority: int
    ahead: int
    expires_at: datetime | None
    estimated_start: datetime | None
    ahead_is_exact: bool = True
    earliest_start: datetime | None = None
    latest_start: datetime | None = None
    misses_deadline: bool = False
    """True if simulations expect it to expire before it starts."""
    remedies: Sequence[Remedy] = ()
    """The smallest changes that would start the task, each by itself: now, or before a deadline that it would miss."""
    all_remedies: bool = True
    """False if the queue is too long to look for all of them."""

    def __str__(self) -> str:
        return self.summary


class Situation(msgspec.Struct, array_like=True):
    """The stored fields of a task that can hold it back."""

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
    """The instant from which its TTL counts."""
    place_id: int
    """The task whose place in the queue it took over; its own id if none."""
    may_expire: bool
    """True if it expires when its deadline has passed."""
    io: str | None = None

    @property
    def aged_from(self) -> int:
        return self.queued_at if self.renewed_at is None else self.renewed_at


class Surroundings(msgspec.Struct, kw_only=True):
    """The rest of the queue and the machines."""

    running: Counter[tuple[str, str]]
    """Running tasks, by group and type."""
    waiting: Counter[tuple[str, str]]
    """Waiting tasks, by group and type; read only if groups share the slots."""
    ahead: int = 0
    ahead_is_exact: bool = True
    """False if more tasks are ahead than were counted."""
    recent: tuple[int, int | None, int | None] = (0, None, None)
    """The number of tasks that ended recently, and when the first and the last of them ended."""
    is_dispatching: bool = True
    unknown_types: Collection[str] = ()
    """The types among these without a handler in any scheduler that runs tasks."""
    budget: IoBudget | None = None
    """The expected IO of the task."""
    budgets_by_node: Mapping[int | None, Sequence[IoBudget]] = msgspec.field(
        default_factory=dict["int | None", "Sequence[IoBudget]"]
    )
    """The expected IO of running tasks, by node."""
    machines: Sequence[NodeMachine] = ()
    """The machines of the nodes on which it may start."""

    def budgets_on(self, node: int | None) -> Sequence[IoBudget]:
        return self.budgets_by_node.get(node, ())


class GroupLoad(NamedTuple):
    """The load of all groups."""

    running: Counter[tuple[str, str]]
    """Running tasks, by group and type."""
    waiting: Counter[tuple[str, str]]
    """Tasks that may start, by group and type."""
    unstarted: Mapping[str, int]
    """Tasks that wait to run, by type: pending, scheduled, blocked and paused ones."""
    next_priority: Mapping[str, int]
    """The effective priority of the next task of each group."""
    controls: Controls
