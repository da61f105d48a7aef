"""What ``taskmill doctor`` checks outside a store: versions, this machine, and the disk and the clock of a file."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from taskmill import __version__
from taskmill.cli import text

NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "fuse.sshfs", "fuse.glusterfs", "lustre"})
"""File systems on which SQLite's locks and shared memory do not work between machines."""
LITTLE_SPACE = 64_000_000
"""With less free space a checkpoint may fail."""
SOME_SPACE = 1_000_000_000
CLOCK_TOLERANCE = 2.0
OLDEST_PYTHON = (3, 11)

MOUNTS = Path("/proc/self/mounts")


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    level: Literal["ok", "note", "problem"]
    subject: str
    text: str


def machine_facts() -> dict[str, str]:
    """Return the versions and the platform, without the name of the machine or its user."""
    return {
        "taskmill": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": platform.platform(terse=True),
        "machine": platform.machine(),
    }


def judge_machine(facts: Mapping[str, str]) -> Iterator[Finding]:
    yield Finding("ok", "taskmill", facts["taskmill"])
    level: Literal["ok", "problem"] = "ok" if sys.version_info >= OLDEST_PYTHON else "problem"
    yield Finding(level, "Python", f"{facts['python']} on {facts['platform']}, {facts['machine']}")


def disk_facts(file: str) -> dict[str, str | int | float | None]:
    """Return the kind and the free space of the file system of a database, and how far its times are ahead."""
    folder = Path(file).absolute().parent
    changed = [path.stat().st_mtime for path in (Path(file), Path(f"{file}-wal")) if path.exists()]
    return {
        "file_system": file_system(folder),
        "free_bytes": shutil.disk_usage(folder).free,
        "file_ahead": max(changed) - time.time(),
    }


def file_system(folder: Path, mounts: Path = MOUNTS) -> str | None:
    """Return the kind of the file system of a folder, such as ``ext4``; None where the system does not say."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    best, kind = "", None
    real = os.path.realpath(folder)
    for line in lines:
        _, point, found, *_ = line.split(" ")
        # Blanks in the names of mount points are written as \040.
        point = point.replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, found
    return kind


def judge_disk(file: str, facts: Mapping[str, str | int | float | None]) -> Iterator[Finding]:
    yield _file_system(facts["file_system"])
    yield _space(int(facts["free_bytes"] or 0))
    yield _folder(Path(file).absolute().parent)
    yield _clock(float(facts["file_ahead"] or 0))


def _file_system(kind: str | int | float | None) -> Finding:
    if kind is None:
        return Finding("note", "file system", "this system does not report its kind; SQLite needs a local disk")
    if kind in NETWORK:
        return Finding(
            "problem",
            "file system",
            f"{kind} is a network file system, on which SQLite may lose data; use a local disk or PostgreSQL",
        )
    return Finding("ok", "file system", str(kind))


def _space(free: int) -> Finding:
    found = f"{text.size(free)} free"
    if free < LITTLE_SPACE:
        return Finding("problem", "free space", f"{found}: new tasks will soon be refused; free some space")
    if free < SOME_SPACE:
        return Finding(
            "note",
            "free space",
            f"{found}, which is little, because the log alone may take tens of megabytes; free some space",
        )
    return Finding("ok", "free space", found)


def _folder(folder: Path) -> Finding:
    if os.access(folder, os.W_OK):
        return Finding("ok", "folder", "this user may write in it")
    return Finding(
        "note",
        "folder",
        "this user may not write in it, and so cannot dispatch: SQLite needs files beside the database",
    )


def _clock(ahead: float) -> Finding:
    if ahead <= CLOCK_TOLERANCE:
        return Finding("ok", "clock", "not behind the last change of the file")
    return Finding(
        "note",
        "clock",
        f"the file was last changed {text.duration(ahead)} in the future: this clock was set back, or another machine"
        " wrote the file; synchronize clocks with NTP",
    )
