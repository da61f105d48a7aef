"""What a submission means when an active task holds its key.

Laws: the holder of a key is never lost without a history row; a submission never makes a waiting task less urgent; a
replacement never starts before the attempt it replaces has ended.
"""

from __future__ import annotations

import msgspec

from taskmill.model.status import WAITING_TO_RUN, OnDuplicate, Status

Name = tuple[str, str]
"""A task type and a key."""


class Holder(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The active task that holds a key, with its place in the queue and the gate it waits behind, if any."""

    id: int
    status: Status
    priority: int
    queued_at: int
    gate_id: int | None = None
    parent_id: int | None = None
    series_id: int | None = None
    is_under_way: bool = False
    """Whether it has children at work, or has only its ``finalize`` left to run."""
    saved: str | None = None
    """What it has saved, or what the task that it replaced had."""
    is_held: bool = False
    """Whether it waits until fewer of its siblings are in the queue."""
    is_capped: bool = False
    """Whether its parent lets only so many children into the queue."""
    place_id: int | None = None
    """The task whose place in the queue it has; None: its own."""
    hook_left: bool = False
    """True if it has started before, does not run, and has an ``on_cancel`` hook."""
    is_added: bool = False
    """True if requeue has added it after the run that is its gate, which has not ended."""
    gate_stops: bool = False
    """True if its gate was asked to stop."""
    is_late: bool = False
    """True if its stored deadline has passed: it may have expired."""

    @property
    def waits_to_run(self) -> bool:
        return self.status in WAITING_TO_RUN

    @property
    def rests(self) -> bool:
        """True if nothing of it is under way."""
        return not self.is_under_way and self.status in WAITING_TO_RUN

    @property
    def ends_at_once(self) -> bool:
        """True if nothing has to be done about it before it can be replaced."""
        return self.rests and not self.hook_left


class KeepHolder(msgspec.Struct, frozen=True, gc=False):
    """The submission is not stored; the holder stands for it, raised to ``priority`` if that is given."""

    priority: int | None = None


class AddRun(msgspec.Struct, frozen=True, gc=False):
    """The submission is stored as a run of its own, which may start when the holder has ended."""


class RenewAdded(msgspec.Struct, frozen=True, gc=False):
    """The holder is a run that was added before: it becomes what the submission wants.

    With ``supersedes`` it replaces the run under way, which stops.
    """

    supersedes: bool = False


class Replace(msgspec.Struct, frozen=True, gc=False):
    """The submission is stored in the holder's stead; ``gate_id`` must end before it may start.

    It takes the place of a holder that ends at once.
    """

    gate_id: int | None
    ends_at_once: bool


Answer = KeepHolder | AddRun | RenewAdded | Replace


def is_stored(strategy: OnDuplicate, holder: Holder) -> bool:
    """True if a task is stored, or renewed, as the submission wants it, though ``holder`` has its key."""
    adds = strategy is OnDuplicate.REQUEUE and (not holder.rests or holder.is_added)
    return adds or strategy is OnDuplicate.SUPERSEDE


def refuses(strategy: OnDuplicate) -> bool:
    """Whether the submission is an error when anyone holds its key."""
    return strategy is OnDuplicate.REJECT


def answer_duplicate(strategy: OnDuplicate, holder: Holder, priority: int) -> Answer:
    """What a submission that was not refused does."""
    match strategy:
        case OnDuplicate.SUPERSEDE:
            if holder.is_added and not holder.gate_stops:
                return RenewAdded(supersedes=True)
            if holder.ends_at_once:
                return Replace(gate_id=holder.gate_id, ends_at_once=True)
            return Replace(gate_id=holder.id, ends_at_once=False)
        case OnDuplicate.REQUEUE if not holder.rests:
            return AddRun()
        case OnDuplicate.REQUEUE if holder.is_added:
            return RenewAdded()
        case _:
            upgrades = holder.waits_to_run and priority < holder.priority
            return KeepHolder(priority if upgrades else None)
