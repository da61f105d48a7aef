"""Where the temporary files of a run are: in memory, if there is room.

The tests create thousands of databases, and on a disk each commit waits for it. What is committed outlives a killed
process in memory too. No test can cut the power: ``tests/power`` records the writes and syncs of a process and computes
what a disk would have kept.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
DISK = Path("/var/tmp")
ENOUGH = 2 * 1024**3
"""Free bytes that a run needs for its PostgreSQL servers, wheels, environments and databases, several times over."""


def has_room(folder: Path) -> bool:
    """Return True if the folder can hold the files of a run, some of which are programs."""
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        return False
    return not os.statvfs(folder).f_flag & os.ST_NOEXEC and shutil.disk_usage(folder).free >= ENOUGH


def use_memory() -> None:
    """Let this process and those that it starts create temporary files in memory; ``TMPDIR`` decides otherwise."""
    if "TMPDIR" not in os.environ and has_room(MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """Return an empty folder on a disk, for tests of what is counted there."""
    with tempfile.TemporaryDirectory(dir=DISK if DISK.is_dir() else None) as folder:
        yield Path(folder)
