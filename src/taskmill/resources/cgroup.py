"""Read the limits of Linux control groups, version 2. In a container they replace those of the machine.

A limit applies to a group and all groups within it, so the limit that binds may be set anywhere between our own group
and the topmost visible one. The usage of that whole group counts against it. Limits are read each time, because they
may change while the container runs.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from taskmill.model.io_budget import MOST_BYTES, IoBudget

_PROC = Path("/proc/self")


class CpuQuota(NamedTuple):
    """The number of processors a group may use, and the CPU seconds it has used."""

    cores: float
    used_seconds: float


class MemoryQuota(NamedTuple):
    """The bytes a group may use, and the bytes it uses without reclaimable file cache."""

    bytes: int
    used: int


class IoQuota(NamedTuple):
    """The bytes per second a group may move (0 means no limit), and the bytes it has moved so far."""

    allowed: IoBudget
    moved: IoBudget


class Cgroup:
    """Our own group at ``directory``; ``top`` is the topmost visible group."""

    def __init__(self, directory: Path, top: Path) -> None:
        self.directory = directory
        self._top = top

    @property
    def is_root(self) -> bool:
        """True if the group is the whole machine, as far as this process can see."""
        return self.directory == self._top and not (self.directory / "cgroup.type").exists()

    def _upward(self) -> Iterator[Path]:
        yield self.directory
        for above in self.directory.parents:
            if not above.is_relative_to(self._top):
                return
            yield above

    def cpu(self) -> CpuQuota | None:
        """Return the tightest limit; ``None`` if there is none."""
        quotas: list[CpuQuota] = []
        for directory in self._upward():
            quota, _, period = _text(directory / "cpu.max").partition(" ")
            used = _fields(_text(directory / "cpu.stat")).get("usage_usec")
            if _is_count(quota) and _is_count(period) and int(period) and used is not None:
                quotas.append(CpuQuota(int(quota) / int(period), used / 1e6))
        # Of equal limits the outer one binds, because the usage of all groups within it counts.
        return min(quotas, key=lambda quota: (quota.cores, -quota.used_seconds), default=None)

    def memory(self) -> MemoryQuota | None:
        """Return the limit that is closest to being reached; ``None`` if there is none."""
        quotas: list[MemoryQuota] = []
        for directory in self._upward():
            limit, current = _text(directory / "memory.max"), _text(directory / "memory.current")
            if _is_count(limit) and _is_count(current) and int(limit):
                # Inactive file cache is reclaimed as soon as memory is needed.
                droppable = _fields(_text(directory / "memory.stat")).get("inactive_file", 0)
                quotas.append(MemoryQuota(int(limit), max(int(current) - droppable, 0)))
        return max(quotas, key=lambda quota: quota.used / quota.bytes, default=None)

    def io(self) -> IoQuota | None:
        """Return the tightest limits of any disk; ``None`` if there are none.

        It is not known which disk a task will use, so the slowest one counts.
        """
        reads, writes, moved = list[int](), list[int](), None
        for directory in self._upward():
            limits = [_pairs(line) for line in _text(directory / "io.max").splitlines()]
            here_reads = [limit["rbps"] for limit in limits if limit.get("rbps")]
            here_writes = [limit["wbps"] for limit in limits if limit.get("wbps")]
            if (here_reads or here_writes) and moved is None:
                stats = [_pairs(line) for line in _text(directory / "io.stat").splitlines()]
                moved = IoBudget(
                    min(sum(stat.get("rbytes", 0) for stat in stats), MOST_BYTES),
                    min(sum(stat.get("wbytes", 0) for stat in stats), MOST_BYTES),
                )
            reads += here_reads
            writes += here_writes
        if moved is None:
            return None
        return IoQuota(
            IoBudget(min([*reads, MOST_BYTES]) if reads else 0, min([*writes, MOST_BYTES]) if writes else 0), moved
        )

    def pressure_file(self, resource: str) -> Path | None:
        """Return the pressure file of our own group; ``None`` if it is the whole machine or the file is missing."""
        file = self.directory / f"{resource}.pressure"
        return file if not self.is_root and file.exists() else None


def own_cgroup(proc: Path = _PROC) -> Cgroup | None:
    """Return the group of this process; ``None`` on systems without version 2 groups."""
    path = next((line[3:] for line in _text(proc / "cgroup").splitlines() if line.startswith("0::")), None)
    if path is None:
        return None
    for line in _text(proc / "mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        if not after.startswith("cgroup2 "):
            continue
        fields = before.split(" ")
        if len(fields) < 5:
            continue
        root, top = _unescaped(fields[3]), Path(_unescaped(fields[4]))
        # A container may see its own group as the root, or the host's path with only its own part mounted.
        inside = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()
        directory = top / inside
        if ".." not in directory.parts and directory.is_dir():
            return Cgroup(directory, top)
    return None


def _text(file: Path) -> str:
    """Return the text of a file; empty if it is missing or not readable."""
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text(encoding="utf-8").strip()
    return ""


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _fields(text: str) -> Mapping[str, int]:
    """Parse lines of ``name number``."""
    found = (line.partition(" ") for line in text.splitlines())
    return {name: int(value) for name, _, value in found if _is_count(value)}


def _pairs(line: str) -> Mapping[str, int]:
    """Return the numbers in a line such as ``8:0 rbps=1048576 wbps=max``, by name."""
    found = (word.partition("=") for word in line.split(" "))
    return {name: int(value) for name, _, value in found if _is_count(value)}


def _unescaped(path: str) -> str:
    """Decode the kernel's octal escapes, such as ``\\040`` for a space."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)
