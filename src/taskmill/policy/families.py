"""Decide what children inherit, how a task tree is stopped, and what a parent does next.

Laws: the last child to end wakes its waiting parent, however the children ended; a tree is stopped leaves first, and
no task in it ends before its children; a child that inherits a deadline never outlives it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from taskmill.model.attempt import End, StopReason, Verdict, Wait
from taskmill.model.options import valid_tags
from taskmill.model.status import WAITING_TO_RUN, Ending, Status
from taskmill.model.task import NO_LINKS, Family, NewTask

FAILURES = frozenset({Ending.FAILED, Ending.DEAD_LETTER, Ending.DEPENDENCY_FAILED})
"""Endings of a child that fail its parent. A cancelled, superseded or expired child has not failed."""

ENDING_OF_STOP: Mapping[str, Ending] = {
    StopReason.CANCEL: Ending.CANCELLED,
    StopReason.SUPERSEDE: Ending.SUPERSEDED,
    StopReason.FAIL: Ending.FAILED,
}
"""How a task ends that was asked to stop, by the reason."""

NOTHING = "null"
"""The stored result of a function that returned ``None``."""


class ParentTraits(msgspec.Struct, frozen=True, array_like=True):
    """The values that children inherit from their parent."""

    urgency: int
    expires_at: int | None
    tags: Mapping[str, str] | None


def inherit(task: NewTask, parent_id: int, parent: ParentTraits) -> NewTask:
    """Return ``task`` as a child of ``parent``; raise ``InvalidTag`` if the merged tags are not valid.

    The child is at least as urgent as its parent, inherits its tags and, without a TTL of its own, its deadline.
    """
    links = msgspec.structs.replace(task.links or NO_LINKS, parent_id=parent_id)
    child = msgspec.structs.replace(task, links=links, priority=min(task.priority, parent.urgency))
    if parent.tags:
        child = msgspec.structs.replace(child, tags=valid_tags({**parent.tags, **(task.tags or {})}))
    if parent.expires_at is not None and not links.own_ttl:
        child = msgspec.structs.replace(child, expires_at=parent.expires_at, ttl_ms=None)
    return child


class Member(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An active task of a tree."""

    id: int
    parent_id: int | None
    status: Status
    stop: str | None
    finalizing: bool
    on_parent_expiry: str | None
    hook_left: bool = False
    """True if it has started before, does not run, and has an ``on_cancel`` hook."""

    @property
    def rests(self) -> bool:
        """True if it waits to run and nothing of it is under way."""
        return self.status in WAITING_TO_RUN and self.stop is None and not self.finalizing


class StopPlan(msgspec.Struct):
    """How to stop a tree, by task id."""

    ends: list[int] = msgspec.field(default_factory=list[int])
    """Tasks that end at once, leaves first."""
    running: list[int] = msgspec.field(default_factory=list[int])
    """Running tasks, which are asked to stop."""
    waits: list[int] = msgspec.field(default_factory=list[int])
    """Tasks that wait for their children to end; their hooks run afterwards."""
    hooks: list[int] = msgspec.field(default_factory=list[int])
    """Tasks whose hook must run before they end: they have started before and may hold something open."""

    def places(self) -> Iterator[tuple[int, Status]]:
        """Yield the tasks that are asked to stop, each with the status it has from now on."""
        for status, ids in ((Status.RUNNING, self.running), (Status.WAITING, self.waits), (Status.PENDING, self.hooks)):
            yield from ((id, status) for id in ids)


def plan_stop(members: Sequence[Member], roots: Collection[int]) -> StopPlan:
    """Plan how to stop the trees that start at ``roots``; ``members`` are all their active tasks."""
    plan = StopPlan()
    has_live_child: set[int] = set()
    for member in _leaves_first(members, roots):
        if member.stop is None:
            if member.status is Status.RUNNING:
                plan.running.append(member.id)
            elif member.id in has_live_child:
                plan.waits.append(member.id)
            elif member.hook_left:
                plan.hooks.append(member.id)
            else:
                plan.ends.append(member.id)
                continue
        if member.parent_id is not None:
            has_live_child.add(member.parent_id)
    return plan


class ExpiryPlan(msgspec.Struct):
    """What happens to the descendants of a parent that expires."""

    expires: list[int]
    stops: list[int]
    """Roots of the trees to cancel."""


def plan_expiry(members: Sequence[Member], roots: Collection[int]) -> ExpiryPlan:
    """Expire all descendants that wait to run; cancel or keep the others.

    They are cancelled if they or one of their parents have ``on_parent_expiry="cancel"``.
    """
    order = _leaves_first(members, roots)
    cancels: set[int | None] = set()
    for member in reversed(order):
        if member.on_parent_expiry == "cancel" or member.parent_id in cancels:
            cancels.add(member.id)
    return ExpiryPlan(
        expires=[member.id for member in order if member.rests],
        stops=[member.id for member in order if not member.rests and member.id in cancels],
    )


def _leaves_first(members: Iterable[Member], roots: Collection[int]) -> list[Member]:
    """Return the roots and their descendants, the deepest first; a root may lie below another root."""
    known = {member.id: member for member in members}
    children: dict[int, list[Member]] = {}
    for member in known.values():
        if member.parent_id is not None:
            children.setdefault(member.parent_id, []).append(member)
    level = [known[root] for root in roots if root in known]
    depths: dict[int, int] = {}
    depth = 0
    while level:
        depths.update((member.id, depth) for member in level)
        level = [child for member in level for child in children.get(member.id, ())]
        depth += 1
    return sorted((known[id] for id in depths), key=lambda member: depths[member.id], reverse=True)


Step = Literal["hook", "stop", "end", "finalize", "stay"]


def next_step(status: Status, stop: str | None, *, finalizing: bool, hook_left: bool) -> Step:
    """Return what a parent does when its last child has ended.

    ``hook``: its ``on_cancel`` hook runs. ``stop``: it ends because it was stopped. ``end``: it ends as its last
    attempt decided. ``finalize``: its ``finalize`` runs. ``stay``: nothing changes.
    """
    if status is not Status.WAITING:
        return "stay"
    if stop is None:
        return "finalize" if finalizing else "end"
    if stop == StopReason.FAIL:
        return "end"
    return "hook" if hook_left else "stop"


def family_verdict(verdict: Verdict, family: Family | None, *, finalizes: bool, spawned_now: bool) -> Verdict:
    """Return the verdict on a parent: instead of completing, it waits for its children and then finalizes.

    ``finalizes`` is true if the task type has a ``finalize``. ``spawned_now`` is true if this attempt spawned children;
    a ``finalize`` that spawned none completes the task. The result is that of ``finalize`` or, if it returned ``None``,
    that of the handler.
    """
    finalizing = family is not None and bool(family.finalizing)
    match verdict:
        case End(Ending.COMPLETED, result):
            if finalizing and family is not None and result == NOTHING:
                result = family.result
            if finalizing and not spawned_now:
                return End(Ending.COMPLETED, result=result)
            return Wait(result or NOTHING, finalizes=finalizes)
        case _:
            return verdict
