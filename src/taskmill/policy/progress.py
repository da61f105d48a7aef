"""Compute the smoothed byte rate and remaining time of a task, or estimate its progress from history."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from taskmill.model.durations import LONGEST_MS
from taskmill.model.progress import ProgressReport, StoredProgress, TaskProgress
from taskmill.model.status import Status

SMOOTHING = 0.3
MOST_GUESSED = 0.99
"""The highest estimated fraction: an estimate never claims that a task is done."""


def advanced(before: StoredProgress | None, report: ProgressReport, elapsed: float) -> StoredProgress:
    """Return the progress after ``report``, which came ``elapsed`` seconds after ``before``."""
    rate = before.rate if before else None
    done_before = before.done_bytes or 0 if before else 0
    if report.done_bytes is not None and elapsed > 0 and report.done_bytes >= done_before:
        momentary = (report.done_bytes - done_before) / elapsed
        if rate is not None:
            rate = SMOOTHING * momentary + (1 - SMOOTHING) * rate
        elif momentary:
            # No rate before the first bytes: the total may be reported long before they move.
            rate = momentary
    eta_ms = None
    if rate and report.total_bytes is not None and report.done_bytes is not None:
        eta_ms = int(min(max(report.total_bytes - report.done_bytes, 0) / rate * 1000, LONGEST_MS))
    message = report.message if report.message is not None else (before.message if before else None)
    return StoredProgress(
        fraction=report.fraction,
        message=message,
        done_bytes=report.done_bytes,
        total_bytes=report.total_bytes,
        rate=rate,
        eta_ms=eta_ms,
    )


def extrapolated(own: TaskProgress | None, elapsed: timedelta, usual: timedelta | None) -> TaskProgress | None:
    """Estimate the progress of a running task that reports none, from the usual duration of its type.

    The fraction grows evenly up to 99 %. The remaining time is unknown once the task takes longer than usual.
    """
    if (own is not None and own.fraction is not None) or usual is None or usual <= timedelta():
        return own
    fraction = min(max(elapsed / usual, 0.0), MOST_GUESSED)
    eta = max(usual - max(elapsed, timedelta()), timedelta()) or None
    return msgspec.structs.replace(own or TaskProgress(), fraction=fraction, eta=eta)


def with_children(
    own: TaskProgress | None, children: int, ended: int, under_way: float, status: Status
) -> TaskProgress | None:
    """Return the progress of a parent: its own report while it runs, else the mean progress of its children.

    ``under_way`` is the sum of the fractions reported by children that have not ended.
    """
    if status is Status.RUNNING and own is not None:
        return own
    fraction = min((ended + under_way) / children, 1.0) if children else None
    if own is None:
        return TaskProgress(fraction=fraction)
    return msgspec.structs.replace(own, fraction=fraction)
