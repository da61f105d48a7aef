"""Progress over time: the rate of bytes, smoothed, and the time left at that rate."""

from __future__ import annotations

import msgspec

from taskmill.model.progress import ProgressReport, StoredProgress, TaskProgress
from taskmill.model.status import Status

SMOOTHING = 0.3


def advanced(before: StoredProgress | None, report: ProgressReport, elapsed: float) -> StoredProgress:
    """The progress after ``report``, which came ``elapsed`` seconds after ``before``."""
    rate = before.rate if before else None
    done_before = before.done_bytes or 0 if before else 0
    if report.done_bytes is not None and elapsed > 0 and report.done_bytes >= done_before:
        momentary = (report.done_bytes - done_before) / elapsed
        rate = momentary if rate is None else SMOOTHING * momentary + (1 - SMOOTHING) * rate
    eta_ms = None
    if rate and report.total_bytes is not None and report.done_bytes is not None:
        eta_ms = int(max(report.total_bytes - report.done_bytes, 0) / rate * 1000)
    message = report.message if report.message is not None else (before.message if before else None)
    return StoredProgress(
        fraction=report.fraction,
        message=message,
        done_bytes=report.done_bytes,
        total_bytes=report.total_bytes,
        rate=rate,
        eta_ms=eta_ms,
    )


def with_children(
    own: TaskProgress | None, children: int, ended: int, under_way: float, status: Status
) -> TaskProgress | None:
    """The progress of a parent: what it says itself while it runs, else how far its children have come together.

    ``under_way`` is the sum of the fractions reported by children that have not ended.
    """
    if status is Status.RUNNING and own is not None:
        return own
    fraction = min((ended + under_way) / children, 1.0) if children else None
    if own is None:
        return TaskProgress(fraction=fraction)
    return msgspec.structs.replace(own, fraction=fraction)
