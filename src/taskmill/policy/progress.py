"""Compute the smoothed byte rate and remaining time of a task, or estimate its progress from history."""

from __future__ import annotations

from datetime import timedelta
from math import expm1

from msgspec.structs import replace

from taskmill.model.durations import LONGEST_MS
from taskmill.model.progress import ByteRate, ProgressReport, StoredProgress, TaskProgress
from taskmill.model.status import Status

SHORTEST_SAMPLE = 0.4
"""Seconds that a sample of the byte rate covers at least; reports come every half second or less often."""
SETTLING = 0.8
"""Seconds after the first bytes in which reports only set the starting point of the measurement."""
TIME_CONSTANT = 3.0
"""Seconds after which a sample counts for 37 % of what it counted at first."""
MOST_GUESSED = 0.99
"""The highest estimated fraction: an estimate never claims that a task is done."""


def advanced(before: StoredProgress | None, report: ProgressReport, measured: ByteRate | None) -> StoredProgress:
    """Return the progress after ``report``, which came after ``before``, with the rate that was ``measured``."""
    rate = None if measured is None else measured.rate
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


def measured_rate(before: ByteRate | None, report: ProgressReport, at: float) -> ByteRate | None:
    """Return the byte rate after a report that was read at ``at``, in seconds of a monotonic clock.

    Laws, for a handler that moves bytes at a steady speed, however it divides them into reports and whatever its first
    report counts: the rate is never more than three times that speed, and six seconds after the first bytes it is
    within 25 % of it. They hold because

    - the first bytes are the starting point, not throughput: they may be what an earlier attempt has sent, or a chunk
      that only filled a buffer. So are those of the next moments, if the handler counts them one by one;
    - bytes are collected into samples of at least :data:`SHORTEST_SAMPLE` seconds, because a report may be half a
      second old when it is read;
    - a sample counts by the time that it covers, and less the older it is.

    A new total, or a count that goes back, sets a new starting point; the rate stays until the next sample.
    """
    done = report.done_bytes
    if done is None:
        return before
    if before is None:
        return ByteRate(at, at, done, report.total_bytes)
    if before.done == 0 or done < before.done or report.total_bytes != before.total:
        return replace(before, moving_since=at, at=at, done=done, total=report.total_bytes)
    elapsed, moved = at - before.at, done - before.done
    if at - before.moving_since < SETTLING or (before.rate is None and not moved):
        return replace(before, at=at, done=done)
    if elapsed < SHORTEST_SAMPLE:
        return before
    seconds = before.seconds + elapsed
    weight = expm1(-elapsed / TIME_CONSTANT) / expm1(-seconds / TIME_CONSTANT)
    rate = before.rate or 0.0
    return replace(before, at=at, done=done, rate=rate + weight * (moved / elapsed - rate), seconds=seconds)


def extrapolated(own: TaskProgress | None, elapsed: timedelta, usual: timedelta | None) -> TaskProgress | None:
    """Estimate the progress of a running task that reports none, from the usual duration of its type.

    The fraction grows evenly up to 99 %. The remaining time is unknown once the task takes longer than usual.
    """
    if (own is not None and own.fraction is not None) or usual is None or usual <= timedelta():
        return own
    fraction = min(max(elapsed / usual, 0.0), MOST_GUESSED)
    eta = max(usual - max(elapsed, timedelta()), timedelta()) or None
    return replace(own or TaskProgress(), fraction=fraction, eta=eta)


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
    return replace(own, fraction=fraction)
