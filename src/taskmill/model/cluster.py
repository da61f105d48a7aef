"""What nodes that dispatch together tell each other: what they hold, what they ask for, what they plan to start."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec


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
    """Who dispatches, and what they are at, as of a survey."""

    nodes: Sequence[int] = ()
    """All of them, this one too."""
    own: int | None = None
    most_urgent: int | None = None
    """How urgent the most urgent task is that another node runs."""
    types: Collection[str] = ()
    """Those types of waiting tasks that other nodes can run."""


NOBODY = Others()
"""Before the first survey."""


class Start(NamedTuple):
    """A task that is to start; ``by_turn`` if it is so because of the share of its group."""

    id: int
    group: str
    type: str
    by_turn: bool = True


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
