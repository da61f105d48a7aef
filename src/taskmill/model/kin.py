"""What ties a task to others: a parent, tasks it depends on, a recurring series."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from taskmill.model.status import OnDependencyFailure


class OnParentExpiry(StrEnum):
    """What becomes of a running child when its parent expires."""

    COMPLETE = "complete"
    CANCEL = "cancel"


class Kin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The ties of a new task; the order of the first five is the order of the store's insert."""

    parent_id: int | None = None
    series_id: int | None = None
    on_dependency_failure: OnDependencyFailure | None = None
    on_parent_expiry: OnParentExpiry | None = None
    """``None`` stands for ``complete``."""
    held: bool = False
    """Whether it waits until fewer of its siblings are in the queue."""
    depends_on: tuple[int | str, ...] = ()
    """Ids of tasks, or the ``ref`` names of submissions in the same request."""
    ref: str | None = None
    own_ttl: bool = False
    """Whether its time-to-live was meant for it, and not merely the scheduler's default."""
    every_ms: int | None = None
    max_runs: int | None = None


NO_KIN = Kin()
