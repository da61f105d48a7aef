"""Measure the machine and worker processes with psutil: counters, rates, and the built-in sampler.

Only this module imports psutil, when something is measured for the first time. In a limited container the sampler
measures the container.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from taskmill.errors import ConfigError
from taskmill.model.io_budget import MOST_BYTES, NO_IO, IoBudget
from taskmill.model.machine import Reading
from taskmill.resources.cgroup import Cgroup, own_cgroup

INSTALL = 'pip install "taskmill[monitor]"'


def psutil_for(what: str) -> ModuleType:
    """Return psutil, or raise an error that names the feature and how to install it."""
    try:
        import psutil
    except ImportError as missing:
        raise ConfigError(f"{what} needs psutil, which is not installed: {INSTALL}") from missing
    library: ModuleType = psutil
    return library


Counts = Mapping[str, tuple[float, ...]]
"""The counters of each device."""

SHORTEST = 0.05
"""Seconds. Over a shorter span a rate is mostly noise, so the previous rates are returned again."""


class DeviceRates:
    """The rates of several devices since the previous call, each device with a row of counters.

    A rate needs a span of time, so a first call right after construction sleeps for up to :data:`SHORTEST`. A new
    device has a rate from the second call on. A device whose counters went back is left out once.
    """

    def __init__(
        self,
        read: Callable[[], Counts],
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read = read
        self._monotonic = monotonic
        self._sleep = sleep
        self._at = monotonic()
        self._counts = read()
        self._rates: Counts | None = None

    def rates(self) -> Counts:
        """Return the rates per second, by device."""
        now = self._monotonic()
        if now - self._at < SHORTEST:
            if self._rates is not None:
                return self._rates
            self._sleep(SHORTEST - (now - self._at))
            now = max(self._monotonic(), self._at + SHORTEST)
        elapsed = now - self._at
        counts = self._read()
        grown = {name: _difference(self._counts.get(name), row) for name, row in counts.items()}
        self._rates = {name: tuple(count / elapsed for count in row) for name, row in grown.items() if row is not None}
        self._at, self._counts = now, counts
        return self._rates


def _difference(before: tuple[float, ...] | None, now: tuple[float, ...]) -> tuple[float, ...] | None:
    if before is None or len(before) != len(now):
        return None
    grown = tuple(b - a for a, b in zip(before, now, strict=True))
    return grown if min(grown, default=0) >= 0 else None


def total(rates: Counts, width: int) -> tuple[float, ...]:
    """Return the sums over all devices."""
    return tuple(sum(row[index] for row in rates.values()) for index in range(width))


_BLOCK = Path("/sys/block")
_NET = Path("/sys/class/net")
_NOT_DISKS = ("loop", "ram", "zram", "sr", "fd")


def cpu_counts(psutil: ModuleType) -> Counts:
    """Return the busy seconds and the total seconds of all processors together."""
    times: Any = psutil.cpu_times()
    # User time already includes guest time.
    whole = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return {"cpu": (whole - times.idle - getattr(times, "iowait", 0.0), whole)}


def disk_counts(psutil: ModuleType, block: Path = _BLOCK) -> Counts:
    """Return bytes read, bytes written and busy milliseconds of each physical disk."""
    disks: dict[str, Any] = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
    return {
        name: (disk.read_bytes, disk.write_bytes, _milliseconds_at_work(disk))
        for name, disk in disks.items()
        if is_disk(name, block)
    }


def _milliseconds_at_work(disk: Any) -> float:
    busy = getattr(disk, "busy_time", None)
    if busy is not None:
        return float(busy)
    # No busy counter: fall back to the time of single requests, which may overlap.
    return float(getattr(disk, "read_time", 0) + getattr(disk, "write_time", 0))


def is_disk(name: str, block: Path = _BLOCK) -> bool:
    """True for a physical disk: not a partition, and not a device built from other disks, which count its bytes."""
    if name.startswith(_NOT_DISKS):
        return False
    if not block.is_dir():
        return True
    here = block / name.replace("/", "!")
    if not here.is_dir():
        return False
    slaves = here / "slaves"
    return not (slaves.is_dir() and any(slaves.iterdir()))


def network_counts(psutil: ModuleType, net: Path = _NET) -> Counts:
    """Return bytes received and sent by each interface that leads out of the machine."""
    found: dict[str, Any] = psutil.net_io_counters(pernic=True, nowrap=False) or {}
    names = [name for name in found if not is_loopback(name)]
    # Bridges and tunnels forward bytes that count at the hardware; a container may have only such interfaces.
    hardware = [name for name in names if (net / name / "device").exists()]
    return {name: (found[name].bytes_recv, found[name].bytes_sent) for name in hardware or names}


def is_loopback(name: str) -> bool:
    return name in {"lo", "lo0"} or name.startswith("Loopback")


def link_speed(psutil: ModuleType, net: Path = _NET) -> float | None:
    """Return the summed speed, in bytes per second, of all interfaces that are up; ``None`` if none reports one."""
    stats: dict[str, Any] = psutil.net_if_stats()
    names = [name for name, stat in stats.items() if stat.isup and not is_loopback(name)]
    hardware = [name for name in names if (net / name / "device").exists()]
    megabits = sum(max(stats[name].speed, 0) for name in hardware or names)
    return megabits * 1e6 / 8 if megabits else None


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
        # The two counters are not read at the same moment.
        return min(busy / whole, 1.0) if whole else 0.0


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


def process_io(pid: int) -> IoBudget | None:
    """Return the bytes read and written so far; ``None`` if the process is gone or the system does not report them."""
    try:
        psutil = psutil_for("the IO of processes")
    except ConfigError:
        # psutil is not needed with a custom sampler.
        return None
    try:
        counters = psutil.Process(pid).io_counters()
    except (psutil.Error, AttributeError, OSError):
        return None
    return IoBudget(min(max(counters.read_bytes, 0), MOST_BYTES), min(max(counters.write_bytes, 0), MOST_BYTES))
