"""Read the counters of processors, disks and networks from psutil."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from taskmill.resources.rates import Counts

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
    """True for a physical disk: not a partition, and not a device on top of others, whose bytes count there."""
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
