"""What a dispatcher has seen of its machine and its tasks, for restarts and for those who ask from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from taskmill.model.readings import UNKNOWN_CAPACITY, Capacity
from taskmill.model.throttle import Limit


class MovedIo(msgspec.Struct, frozen=True, array_like=True):
    """What the runs of a task type have moved together, in bytes."""

    type: str
    runs: int
    disk_read: int
    disk_write: int
    net_rx: int
    net_tx: int

    @property
    def means(self) -> tuple[float, float, float, float]:
        """By axis, per run."""
        runs = self.runs
        return self.disk_read / runs, self.disk_write / runs, self.net_rx / runs, self.net_tx / runs


class Machine(msgspec.Struct, frozen=True, omit_defaults=True):
    """Pressure as it was when the limits in force changed, and capacity."""

    known: Capacity = UNKNOWN_CAPACITY
    """What was learned."""
    capacity: Capacity = UNKNOWN_CAPACITY
    """What the IO gate goes by."""
    limits: tuple[Limit, ...] = ()
    """Those that hold tasks back."""
    easing: float = 0.0
    pressures: Mapping[str, float] = msgspec.field(default_factory=dict[str, float])
    """By source, while tasks wait for them to fall."""
    returns_below: float | None = None
    """Tasks have made way, and return when the pressure is this low."""


class NodeMachine(NamedTuple):
    """What one of the nodes that dispatch has seen of its machine."""

    node: int | None
    machine: Machine
    is_here: bool = False
    """Whether this scheduler is that node."""


UNSEEN = Machine()
