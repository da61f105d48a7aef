"""Simulated machines: a clock, and psutil with counters that a test sets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class Seconds:
    """A monotonic clock that a test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


class ImaginedPsutil(SimpleNamespace):
    """The part of psutil that is used."""

    Error = OSError

    def __init__(self) -> None:
        super().__init__()
        self.cpu = SimpleTimes(user=0.0, idle=0.0)
        self.disks: dict[str, Any] = {}
        self.nics: dict[str, Any] = {}
        self.links: dict[str, Any] = {}
        self.memory = SimpleNamespace(total=100, available=100)
        self.battery: Any = None

    def cpu_times(self) -> Any:
        return self.cpu

    def disk_io_counters(self, *, perdisk: bool, nowrap: bool) -> dict[str, Any]:
        return dict(self.disks)

    def net_io_counters(self, *, pernic: bool, nowrap: bool) -> dict[str, Any]:
        return dict(self.nics)

    def net_if_stats(self) -> dict[str, Any]:
        return self.links

    def virtual_memory(self) -> Any:
        return self.memory

    def sensors_battery(self) -> Any:
        return self.battery


class SimpleTimes(SimpleNamespace):
    """Named times that can be summed up, as psutil's are."""

    def __iter__(self) -> Any:
        return iter(vars(self).values())


def disk(read: int, written: int, busy_ms: int) -> Any:
    return SimpleNamespace(read_bytes=read, write_bytes=written, busy_time=busy_ms)


def nic(received: int, sent: int) -> Any:
    return SimpleNamespace(bytes_recv=received, bytes_sent=sent)
