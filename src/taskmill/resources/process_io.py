"""What a process has moved: for handlers that run in a process of their own.

A worker runs one handler at a time, so what it has moved between two looks is the work of that handler, including that
of child processes which have ended and were waited for. Networks are not counted by process.
"""

from __future__ import annotations

from taskmill.errors import ConfigError
from taskmill.model.io_budget import MOST_BYTES, IoBudget
from taskmill.resources.psutil_library import psutil_for


def process_io(pid: int) -> IoBudget | None:
    """Bytes to and from disk so far; ``None`` if the process is gone or the system does not tell."""
    try:
        psutil = psutil_for("the IO of processes")
    except ConfigError:
        # A sampler of the user's own does without psutil.
        return None
    try:
        counters = psutil.Process(pid).io_counters()
    except (psutil.Error, AttributeError, OSError):
        return None
    return IoBudget(min(max(counters.read_bytes, 0), MOST_BYTES), min(max(counters.write_bytes, 0), MOST_BYTES))
