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
