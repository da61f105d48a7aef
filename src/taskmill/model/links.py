"""The connections of a task to others: its parent, its dependencies, its recurring series."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from taskmill.model.status import OnDependencyFailure


class OnParentExpiry(StrEnum):
    """What happens to a running child when its parent expires."""

    COMPLETE = "complete"
    CANCEL = "cancel"


class Links(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The connections of a new task. The order of the first five fields is that of the store's insert."""

    parent_id: int | None = None
    series_id: int | None = None
    on_dependency_failure: OnDependencyFailure | None = None
    on_parent_expiry: OnParentExpiry | None = None
    """``None`` means ``complete``."""
    held: bool = False
    """True if it waits until fewer of its siblings are in the queue."""
    depends_on: tuple[int | str, ...] = ()
    """Ids of tasks, or the ``ref`` names of submissions in the same request."""
    ref: str | None = None
    own_ttl: bool = False
    """True if its TTL comes from the call, the task type or the domain, and not from the scheduler's default."""
    every_ms: int | None = None
    max_runs: int | None = None


NO_LINKS = Links()
