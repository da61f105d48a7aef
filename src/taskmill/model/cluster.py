"""What nodes that dispatch together tell each other: what they hold, what they ask for, what they plan to start."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from taskmill.model.aging import Aging


class NodeAtWork(msgspec.Struct, frozen=True, array_like=True):
    """A node that is known, and the tasks that are marked as its own. Instants are those of the store's clock."""

    id: int | None
    name: str
    since: int
    seen_at: int
    is_alive: bool
    slots: int
    running: Sequence[int]
    is_here: bool = False
    """Whether this scheduler is that node."""


class Claim(NamedTuple):
    """What a group asks for. ``waiting`` counts what may start: nothing of a group that is paused or out of permits."""

    running: int
    waiting: int
    weight: float = 1
    cap: int | None = None
    min_slots: int = 0

    @property
    def bound(self) -> int:
        """The most it can use."""
        demand = self.running + self.waiting
        return demand if self.cap is None else min(demand, self.cap)


class Elsewhere(msgspec.Struct, frozen=True):
    """The slots that other nodes have, and those of them that are taken, by group and by domain."""

    groups: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    domains: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    slots: int = 0

    @property
    def running(self) -> int:
        return sum(self.groups.values())


NOWHERE = Elsewhere()
"""Nobody else dispatches."""


class Others(msgspec.Struct, frozen=True):
    """What other nodes are at, as of a survey."""

    most_urgent: int | None = None
    """How urgent the most urgent task is that another node runs."""
    types: Collection[str] = ()
    """Those types of waiting tasks that other nodes can run."""


NOBODY = Others()
"""Before the first survey."""


class Start(NamedTuple):
    """A task that is to start; ``by_share`` if it is so because of the share of its group."""

    id: int
    group: str
    type: str
    by_share: bool = True


class Admission(NamedTuple):
    """A plan, and what it minds."""

    starts: Sequence[Start]
    planned: Elsewhere
    """The others as they were known when it was planned."""
    groups: Mapping[str, int]
    """Slots taken here by group, without the starts."""
    domains: Mapping[str, int]
    caps: Mapping[str, int]
    """The caps of groups, of those that have one."""
    domain_caps: Mapping[str, int]
    claims: Mapping[str, Claim] | None
    """What groups ask for, if slots are shared; ``waiting`` counts the starts too."""
    slots: int
    """How many there are here."""


class Ask(NamedTuple):
    """A waiting task that must not wait, for which a running task is to be preempted."""

    id: int
    effective: int
    type: str
    counts_free: bool = True
    """True if a free slot of another node is expected to serve it."""
    candidates: Collection[int] | None = None
    """The only tasks that may be preempted for it; None: any. A budget of IO is judged by one node, about its own."""


class Preemption(NamedTuple):
    """What a node without free slots asks of all nodes, the most urgent task first."""

    asks: Sequence[Ask]
    leaving: Collection[int]
    """Tasks of this node that were asked to stop, for whatever reason."""
    aging: Aging | None


class Runner(NamedTuple):
    """A running task, on whichever node."""

    id: int
    effective: int
    started_at: int
    node: int
    is_leaving: bool


class Host(NamedTuple):
    """A node that begins tasks: its slots, and the task types that it can run."""

    slots: int
    types: Collection[str]
