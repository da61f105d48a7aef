"""The values that nodes of a cluster exchange: slots held, demand, planned starts, requests to preempt."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from taskmill.model.settings import Aging


class NodeAtWork(msgspec.Struct, frozen=True, array_like=True):
    """A known node and the tasks it runs. Instants are by the store's clock."""

    id: int | None
    name: str
    since: int
    seen_at: int
    is_alive: bool
    slots: int
    running: Sequence[int]
    is_here: bool = False
    """True if this scheduler is that node."""


class RunningElsewhere(msgspec.Struct, frozen=True, array_like=True):
    """A task that another process runs."""

    id: int
    attempt: int
    started_at: int
    progress: str | None


class FailedElsewhere(msgspec.Struct, frozen=True, array_like=True):
    """A failed attempt of a task that is retried, or that was a dead letter and was revived since."""

    id: int
    attempt: int
    at: int
    error: str
    duration_ms: int | None
    retry_ms: int | None
    """The delay of the retry; None if the attempt was the last one before the task was revived."""


class WorkElsewhere(msgspec.Struct, frozen=True):
    """The tasks that other processes run, and the tasks of all processes that failed or ended recently."""

    running: Sequence[RunningElsewhere]
    ended: Sequence[tuple[int, int]]
    """``(ended_at, id)``, the latest ending first."""
    failed: Sequence[FailedElsewhere] = ()
    """The latest failure first."""
    left_out: int = 0
    """How many more have ended or failed."""


class Demand(NamedTuple):
    """The demand of a group. ``waiting`` counts tasks that may start: none if the group is paused or out of permits."""

    running: int
    waiting: int
    weight: float = 1
    cap: int | None = None
    min_slots: int = 0

    @property
    def bound(self) -> int:
        """The most slots it can use."""
        usable = self.running + self.waiting
        return usable if self.cap is None else min(usable, self.cap)


class Elsewhere(msgspec.Struct, frozen=True):
    """The slots of the other nodes: how many there are, and how many are taken, by group and by domain."""

    groups: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    domains: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    slots: int = 0

    @property
    def running(self) -> int:
        return sum(self.groups.values())


NOWHERE = Elsewhere()
"""No other node dispatches."""


class Others(msgspec.Struct, frozen=True):
    """The work of the other nodes, as of the last survey."""

    most_urgent: int | None = None
    """The effective priority of the most urgent task that another node runs."""
    types: Collection[str] = ()
    """The types of waiting tasks that other nodes can run."""


NO_OTHERS = Others()
"""The value before the first survey."""


class Start(NamedTuple):
    """A task to start; ``by_share`` is true if it starts within the share of its group."""

    id: int
    group: str
    type: str
    by_share: bool = True


class Admission(NamedTuple):
    """Planned starts, with the limits that the claiming transaction must check."""

    starts: Sequence[Start]
    planned: Elsewhere
    """The view of the other nodes at the time of planning."""
    groups: Mapping[str, int]
    """Slots taken on this node by group, without the starts."""
    domains: Mapping[str, int]
    caps: Mapping[str, int]
    """The caps of the groups that have one."""
    domain_caps: Mapping[str, int]
    demands: Mapping[str, Demand] | None
    """The demand of each group, if slots are shared; ``waiting`` includes the starts."""
    slots: int
    """The number of slots of this node."""


class Ask(NamedTuple):
    """An urgent waiting task for which a running task is to be preempted."""

    id: int
    effective: int
    type: str
    counts_free: bool = True
    """True if a free slot of another node is expected to serve it."""
    candidates: Collection[int] | None = None
    """The only tasks that may be preempted for it; None for any. A node can judge the IO of its own tasks only."""
    is_spawned: bool = False
    """True if it was spawned by another task."""


class Preemption(NamedTuple):
    """The request of a node without free slots to preempt tasks on any node, the most urgent task first."""

    asks: Sequence[Ask]
    leaving: Collection[int]
    """Tasks of this node that were asked to stop, for any reason."""
    aging: Aging | None


class Runner(NamedTuple):
    """A running task on any node."""

    id: int
    effective: int
    started_at: int
    node: int
    is_leaving: bool
    has_children: bool = False


class Host(NamedTuple):
    """A node that starts tasks: its slots, and the task types that it can run."""

    slots: int
    types: Collection[str]
