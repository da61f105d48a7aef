"""The load of a machine at one moment, and its capacity."""

from __future__ import annotations

import msgspec

from taskmill.errors import ConfigError
from taskmill.model.io_budget import AXES, Axis

HIGHEST_RATE = 2.0**50
"""A pebibyte per second. A higher value is a misread counter."""


class Reading(msgspec.Struct, frozen=True):
    """One measurement of a machine: ``cpu`` from 0 to 1, the rates in bytes per second.

    ``disk_busy`` is the share of time in which the disk was busy, if the system reports it. Values are not checked
    here; :mod:`taskmill.policy.smoothing` ignores impossible ones.
    """

    cpu: float = 0.0
    disk_read: float = 0.0
    disk_write: float = 0.0
    net_rx: float = 0.0
    net_tx: float = 0.0
    disk_busy: float | None = None

    @property
    def rates(self) -> tuple[float, float, float, float]:
        """The rates in the order of :data:`AXES`."""
        return self.disk_read, self.disk_write, self.net_rx, self.net_tx


class Capacity(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rates that a machine can sustain, in bytes per second; 0 means not known."""

    disk_read: float = 0.0
    disk_write: float = 0.0
    net_rx: float = 0.0
    net_tx: float = 0.0

    def __post_init__(self) -> None:
        for axis in AXES:
            rate = getattr(self, axis)
            if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= HIGHEST_RATE:
                raise ConfigError(f"{axis} must be bytes per second, 0 or more, got {str(rate)[:40]}")

    def on(self, axis: Axis) -> float:
        return float(getattr(self, axis))

    @property
    def rates(self) -> tuple[float, float, float, float]:
        """The rates in the order of :data:`AXES`."""
        return self.disk_read, self.disk_write, self.net_rx, self.net_tx


UNKNOWN_CAPACITY = Capacity()
