"""What a submission means when an active task holds its key.

Laws: the holder of a key is never lost without a history row; a submission never makes a waiting task less urgent.
"""

from __future__ import annotations

import msgspec

from taskmill.model.status import OnDuplicate, Status

WAITING_TO_RUN = frozenset({Status.PENDING, Status.SCHEDULED, Status.BLOCKED, Status.PAUSED})


class Holder(msgspec.Struct, frozen=True, gc=False):
    """The active task that holds a key."""

    id: int
    status: Status
    priority: int


class KeepHolder(msgspec.Struct, frozen=True, gc=False):
    """The submission is not stored; the holder stands for it, raised to ``priority`` if that is given."""

    priority: int | None = None


class Refuse(msgspec.Struct, frozen=True, gc=False):
    """The submission is an error."""


Answer = KeepHolder | Refuse


def answer_duplicate(strategy: OnDuplicate, holder: Holder, priority: int) -> Answer:
    match strategy:
        case OnDuplicate.REJECT:
            return Refuse()
        case _:
            upgrades = holder.status in WAITING_TO_RUN and priority < holder.priority
            return KeepHolder(priority if upgrades else None)
