"""Progress over time: the rate of bytes, smoothed, and the time left at it; or a guess from history."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from taskmill.model.progress import ProgressReport, StoredProgress, TaskProgress
from taskmill.model.status import Status

SMOOTHING = 0.3
MOST_GUESSED = 0.99
"""A guess never says that a task is done."""


def advanced(before: StoredProgress | None, report: ProgressReport, elapsed: float) -> StoredProgress:
    """The progress after ``report``, which came ``elapsed`` seconds after ``before``."""
    rate = before.rate if before else None
    done_before = before.done_bytes or 0 if before else 0
    if report.done_bytes is not None and elapsed > 0 and report.done_bytes >= done_before:
        momentary = (report.done_bytes - done_before) / elapsed
        if rate is not None:
            rate = SMOOTHING * momentary + (1 - SMOOTHING) * rate
        elif momentary:
            # Before the first bytes there is no rate: how many there will be may be told long before they come.
            rate = momentary
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


def extrapolated(own: TaskProgress | None, elapsed: timedelta, usual: timedelta | None) -> TaskProgress | None:
    """What a running task is guessed to have done, from how long its type usually takes, if it says nothing itself.

    The fraction grows evenly and stays at 99 %; the time left is unknown once it takes longer than usual.
    """
    if (own is not None and own.fraction is not None) or usual is None or usual <= timedelta():
        return own
    fraction = min(max(elapsed / usual, 0.0), MOST_GUESSED)
    eta = max(usual - max(elapsed, timedelta()), timedelta()) or None
    return msgspec.structs.replace(own or TaskProgress(), fraction=fraction, eta=eta)


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
