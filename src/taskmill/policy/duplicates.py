"""Decide what a submission does when an active task (the holder) already has its key.

Laws: the holder never disappears without a history row; a submission never makes a waiting task less urgent; a
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
    """True if its children are active, or if only its ``finalize`` is left to run."""
    saved: str | None = None
    """Its saved state, or that of the task it replaced."""
    is_held: bool = False
    """True if it waits until fewer of its siblings are in the queue."""
    is_capped: bool = False
    """True if its parent limits how many children are in the queue at once."""
    place_id: int | None = None
    """The task whose place in the queue it took over; None if it has its own."""
    hook_left: bool = False
    """True if it has started before, does not run, and has an ``on_cancel`` hook."""
    is_added: bool = False
    """True if ``requeue`` added it after the run that is its gate, and that run has not ended."""
    gate_stops: bool = False
    """True if its gate was asked to stop."""
    is_late: bool = False
    """True if its stored deadline has passed, so that it may have expired."""

    @property
    def waits_to_run(self) -> bool:
        return self.status in WAITING_TO_RUN

    @property
    def rests(self) -> bool:
        """True if it waits to run and neither it nor its children are under way."""
        return not self.is_under_way and self.status in WAITING_TO_RUN

    @property
    def ends_at_once(self) -> bool:
        """True if it can be replaced at once: it does not run, and no hook has to run first."""
        return self.rests and not self.hook_left


class KeepHolder(msgspec.Struct, frozen=True, gc=False):
    """Do not store the submission; the holder represents it, raised to ``priority`` if that is given."""

    priority: int | None = None


class AddRun(msgspec.Struct, frozen=True, gc=False):
    """Store the submission as a separate run, which may start when the holder has ended."""


class RenewAdded(msgspec.Struct, frozen=True, gc=False):
    """Overwrite the holder, a run added earlier, with the newest submission.

    With ``supersedes`` it replaces the run under way, which is stopped.
    """

    supersedes: bool = False


class Replace(msgspec.Struct, frozen=True, gc=False):
    """Store the submission instead of the holder; it may start when the task ``gate_id`` has ended.

    If the holder ends at once, the replacement takes over its place in the queue.
    """

    gate_id: int | None
    ends_at_once: bool


Answer = KeepHolder | AddRun | RenewAdded | Replace


def is_stored(strategy: OnDuplicate, holder: Holder) -> bool:
    """True if the submission is stored, as a new row or over an added run, although ``holder`` has its key."""
    adds = strategy is OnDuplicate.REQUEUE and (not holder.rests or holder.is_added)
    return adds or strategy is OnDuplicate.SUPERSEDE


def refuses(strategy: OnDuplicate) -> bool:
    """True if the submission is an error while any task holds its key."""
    return strategy is OnDuplicate.REJECT


def answer_duplicate(strategy: OnDuplicate, holder: Holder, priority: int) -> Answer:
    """Decide what a submission does, given that it is not refused."""
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
