"""Pressure sources, which make less urgent tasks wait: ``Scheduler(pressure=[CpuPressure(), ...])``.

A source is any object with a ``name`` and a method ``pressure()`` that returns a number from 0 to 1. ``Pressure`` is
one for a signal of your own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

from taskmill.errors import ConfigError
from taskmill.model.durations import Size, size
from taskmill.policy.pressure import blend
from taskmill.resources.cgroup import Cgroup, own_cgroup
from taskmill.resources.samplers import (
    CpuShare,
    DeviceRates,
    PsutilSampler,
    busiest,
    disk_counts,
    link_speed,
    network_counts,
    psutil_for,
    total,
)

__all__ = [
    "BatteryPressure",
    "CpuPressure",
    "DiskPressure",
    "MemoryPressure",
    "NetworkPressure",
    "Pressure",
    "PsiPressure",
    "PsutilSampler",
]


class Pressure:
    """A signal of your own: ``Pressure("queue", lambda: len(queue) / 1000)``.

    The function returns a number from 0 (no pressure) to 1. It is called in a thread.
    """

    def __init__(self, name: str, function: Callable[[], float]) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"name must be a text that is not empty, got {str(name)[:40]!r}")
        if not callable(function):
            raise ConfigError(f"function must be callable and return a number from 0 to 1, not {function!r:.60}")
        self.name = name
        self._function = function

    def pressure(self) -> float:
        """Call the function."""
        return self._function()


class CpuPressure:
    """The smoothed share of the processors in use."""

    name = "cpu"

    def __init__(self, *, cgroup: Cgroup | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._share = CpuShare("CpuPressure", own_cgroup() if cgroup is None else cgroup, monotonic)
        self._smoothed: float | None = None

    def pressure(self) -> float:
        """Return the pressure from 0 to 1."""
        self._smoothed = blend(self._smoothed, self._share.read())
        return self._smoothed


class MemoryPressure:
    """How scarce memory is: 0 while at most the ``comfortable`` share of it is in use, 1 when all of it is.

    Used memory is not a problem by itself. With the default, the pressure is 0.5 when three quarters are in use.
    """

    name = "memory"

    def __init__(self, *, comfortable: float = 0.5, cgroup: Cgroup | None = None) -> None:
        if isinstance(comfortable, bool) or not isinstance(comfortable, int | float) or not 0 <= comfortable < 1:
            raise ConfigError(f"comfortable must be a number from 0 to less than 1, got {str(comfortable)[:40]}")
        self._psutil = psutil_for("MemoryPressure")
        self._cgroup = own_cgroup() if cgroup is None else cgroup
        self._comfortable = comfortable

    def pressure(self) -> float:
        """Return the pressure from 0 to 1."""
        quota = self._cgroup.memory() if self._cgroup else None
        memory: Any = self._psutil.virtual_memory()
        used = 1 - float(memory.available / memory.total)
        if quota and quota.bytes < memory.total:
            used = quota.used / quota.bytes
        return min(max((used - self._comfortable) / (1 - self._comfortable), 0.0), 1.0)


class DiskPressure:
    """The smoothed share of time in which the busiest disk is busy."""

    name = "disk"

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        psutil = psutil_for("DiskPressure")
        self._disks = DeviceRates(lambda: disk_counts(psutil), monotonic)
        self._smoothed: float | None = None

    def pressure(self) -> float:
        """Return the pressure from 0 to 1."""
        self._smoothed = blend(self._smoothed, busiest(self._disks.rates()))
        return self._smoothed


class NetworkPressure:
    """The smoothed share of ``limit`` that is received and sent: bytes per second, or a text such as ``"10MB"``.

    The default limit is the summed speed that the network links of the machine report.
    """

    name = "network"

    def __init__(self, limit: Size | float | None = None, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        psutil = psutil_for("NetworkPressure")
        if limit is None:
            limit = link_speed(psutil)
            if limit is None:
                raise ConfigError("no link reports its speed: give NetworkPressure a limit, in bytes per second")
        if isinstance(limit, str):
            limit = size(limit, "limit")
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < float("inf"):
            raise ConfigError(f"limit must be bytes per second, more than 0, got {str(limit)[:40]}")
        self.limit = float(limit)
        self._network = DeviceRates(lambda: network_counts(psutil), monotonic)
        self._smoothed: float | None = None

    def pressure(self) -> float:
        """Return the pressure from 0 to 1."""
        self._smoothed = blend(self._smoothed, min(sum(total(self._network.rates(), 2)) / self.limit, 1.0))
        return self._smoothed


class BatteryPressure:
    """The missing charge of the battery while the machine runs on it: 0 on mains power, 0.7 at 30 % of charge.

    The pressure is 0 without a battery, or if the system does not report one.
    """

    name = "battery"

    def __init__(self) -> None:
        self._psutil = psutil_for("BatteryPressure")

    def pressure(self) -> float:
        """Return the pressure from 0 to 1."""
        ask = getattr(self._psutil, "sensors_battery", None)
        battery: Any = ask() if ask else None
        # `power_plugged` may be None (unknown), which must not hold work back.
        if battery is None or battery.power_plugged is not False:
            return 0.0
        return min(max(1 - float(battery.percent) / 100, 0.0), 1.0)


PsiResource = Literal["cpu", "io", "memory"]
_SYSTEM = Path("/proc/pressure")


class PsiPressure:
    """The share of the last 10 seconds in which at least one process of the machine waited for ``resource``.

    In a control group, such as a container, only its own processes count.
    """

    def __init__(self, resource: PsiResource, *, system: Path = _SYSTEM, cgroup: Cgroup | None = None) -> None:
        if resource not in get_args(PsiResource):
            raise ConfigError(f"resource must be one of 'cpu', 'io' and 'memory', got {str(resource)[:40]!r}")
        self.name = f"psi_{resource}"
        cgroup = own_cgroup() if cgroup is None else cgroup
        own = cgroup.pressure_file(resource) if cgroup else None
        self.file = own or system / resource
        try:
            self.pressure()
        except (OSError, ValueError) as missing:
            raise ConfigError(
                f"this system does not report its pressure: {self.file} cannot be read ({missing}). It needs Linux "
                "4.20 or newer with CONFIG_PSI, and the boot option psi=1 where it is off by default"
            ) from missing

    def pressure(self) -> float:
        """Return the pressure from 0 to 1."""
        return some_avg10(self.file.read_text(encoding="ascii"))


def some_avg10(text: str) -> float:
    """Return the ``some avg10`` value as a fraction: ``some avg10=1.53 avg60=...`` is 0.0153."""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["some"]:
            for word in words[1:]:
                name, _, value = word.partition("=")
                if name == "avg10":
                    return min(max(float(value) / 100, 0.0), 1.0)
    raise ValueError("it has no line 'some avg10=...'")
