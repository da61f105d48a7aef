"""Measure the disk IO of a worker process.

A worker runs one handler at a time, so the bytes it moved between two measurements belong to that handler. They include
those of child processes that have ended and were waited for. Network bytes are not counted per process.
"""

from __future__ import annotations

from taskmill.errors import ConfigError
from taskmill.model.io_budget import MOST_BYTES, IoBudget
from taskmill.resources.psutil_library import psutil_for


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
