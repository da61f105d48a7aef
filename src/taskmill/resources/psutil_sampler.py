"""The built-in sampler: psutil, and the limits of our control group."""

from __future__ import annotations

import time
from collections.abc import Callable

from taskmill.model.io_budget import NO_IO, IoBudget
from taskmill.model.machine import Reading
from taskmill.resources.cgroup import Cgroup, own_cgroup
from taskmill.resources.machine import cpu_counts, disk_counts, network_counts
from taskmill.resources.psutil_library import psutil_for
from taskmill.resources.rates import Counts, DeviceRates, total


class CpuShare:
    """The share of processor time in use, relative to the limit of our control group or, without one, to all CPUs."""

    def __init__(self, what: str, cgroup: Cgroup | None, monotonic: Callable[[], float]) -> None:
        psutil = psutil_for(what)
        self._cgroup = cgroup
        self._cores = 0.0
        self._all = DeviceRates(lambda: cpu_counts(psutil), monotonic)
        self._own = DeviceRates(self._group_counts, monotonic)

    def _group_counts(self) -> Counts:
        quota = self._cgroup.cpu() if self._cgroup else None
        self._cores = quota.cores if quota else 0.0
        return {"cpu": (quota.used_seconds,)} if quota else {}

    def read(self) -> float:
        busy, whole = total(self._all.rates(), 2)
        own = self._own.rates()
        if own and self._cores:
            return min(total(own, 1)[0] / self._cores, 1.0)
        return busy / whole if whole else 0.0


class PsutilSampler:
    """Reads CPU, disk and network rates from psutil; in a limited container, CPU and disk of the container."""

    def __init__(self, *, cgroup: Cgroup | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        psutil = psutil_for("resources=True")
        self._cgroup = own_cgroup() if cgroup is None else cgroup
        self._cpu = CpuShare("resources=True", self._cgroup, monotonic)
        self._disks = DeviceRates(lambda: disk_counts(psutil), monotonic)
        self._group_disk = DeviceRates(self._group_moved, monotonic)
        self._network = DeviceRates(lambda: network_counts(psutil), monotonic)

    def _group_moved(self) -> Counts:
        quota = self._cgroup.io() if self._cgroup else None
        return {"disk": (quota.moved.disk_read, quota.moved.disk_write)} if quota else {}

    @property
    def bounds(self) -> IoBudget:
        """Bytes per second that our control group may move; 0 means no limit."""
        quota = self._cgroup.io() if self._cgroup else None
        return quota.allowed if quota else NO_IO

    def sample(self) -> Reading:
        """Return the rates since the last sample, or since the sampler was created."""
        disks = self._disks.rates()
        read, written, _ = total(disks, 3)
        busy: float | None = busiest(disks)
        group = self._group_disk.rates()
        if group:
            # The busy time of the disk says nothing about a group that may use only a part of it.
            (read, written), busy = total(group, 2), None
        received, sent = total(self._network.rates(), 2)
        return Reading(self._cpu.read(), read, written, received, sent, busy)


def busiest(disks: Counts) -> float | None:
    """Return the busy share of the busiest disk; ``None`` if no disk reports it."""
    return min(max((row[2] for row in disks.values()), default=0.0) / 1000, 1.0) if disks else None
