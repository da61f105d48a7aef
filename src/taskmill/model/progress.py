"""The progress of a task: as a handler reports it, as it is stored, and as users see it."""

from __future__ import annotations

from datetime import timedelta

import msgspec


class ProgressReport(msgspec.Struct, frozen=True, gc=False):
    """One report of a handler."""

    fraction: float | None = None
    message: str | None = None
    done_bytes: int | None = None
    total_bytes: int | None = None


class StoredProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Progress as it is written to the store."""

    fraction: float | None = None
    message: str | None = None
    done_bytes: int | None = None
    total_bytes: int | None = None
    rate: float | None = None
    eta_ms: int | None = None


class ByteRate(msgspec.Struct, frozen=True, gc=False):
    """The measured byte rate of an attempt, and where its next sample starts."""

    moving_since: float
    """When the first bytes were reported; this and ``at`` are seconds of a monotonic clock."""
    at: float
    """When the next sample starts, with ``done`` of ``total`` bytes."""
    done: int
    total: int | None
    rate: float | None = None
    """In bytes per second; None before the first sample."""
    seconds: float = 0.0
    """How long all samples are together."""


class TaskProgress(msgspec.Struct, frozen=True):
    """The progress of a task. ``rate`` is in bytes per second, ``eta`` is the remaining time at that rate."""

    fraction: float | None = None
    message: str | None = None
    done_bytes: int | None = None
    total_bytes: int | None = None
    rate: float | None = None
    eta: timedelta | None = None


def readable_progress(stored: StoredProgress) -> TaskProgress:
    return TaskProgress(
        fraction=stored.fraction,
        message=stored.message,
        done_bytes=stored.done_bytes,
        total_bytes=stored.total_bytes,
        rate=stored.rate,
        eta=None if stored.eta_ms is None else timedelta(milliseconds=stored.eta_ms),
    )
