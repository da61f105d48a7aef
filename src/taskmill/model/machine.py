"""What a dispatcher has measured of its machine and tasks. It is stored for restarts and for other processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from taskmill.model.readings import UNKNOWN_CAPACITY, Capacity
from taskmill.model.throttle import Limit


class MovedIo(msgspec.Struct, frozen=True, array_like=True):
    """The bytes that all runs of a task type have moved together."""

    type: str
    runs: int
    disk_read: int
    disk_write: int
    net_rx: int
    net_tx: int

    @property
    def means(self) -> tuple[float, float, float, float]:
        """The mean bytes per run, by axis."""
        runs = self.runs
        return self.disk_read / runs, self.disk_write / runs, self.net_rx / runs, self.net_tx / runs


class Machine(msgspec.Struct, frozen=True, omit_defaults=True):
    """The capacity of a machine, and its pressure when the limits in force last changed."""

    known: Capacity = UNKNOWN_CAPACITY
    """The learned capacity."""
    capacity: Capacity = UNKNOWN_CAPACITY
    """The capacity that the IO limit uses."""
    limits: tuple[Limit, ...] = ()
    """The limits that hold tasks back."""
    easing: float = 0.0
    pressures: Mapping[str, float] = msgspec.field(default_factory=dict[str, float])
    """The pressure by source, while tasks wait for it to fall."""
    returns_below: float | None = None
    """The pressure at which preempted tasks return; ``None`` if pressure keeps none away."""


class NodeMachine(NamedTuple):
    """What one dispatching node has measured of its machine."""

    node: int | None
    machine: Machine
    is_here: bool = False
    """True if this scheduler is that node."""


UNSEEN = Machine()
