"""Circles that a request would close with stored tasks: a new task must not wait for one that waits for it.

Three things tie the two together. A submission waits for stored tasks that it depends on; a stored task waits for its
children, new ones included; and whoever waits for a task that is replaced waits for its replacement. All submissions of
a request are judged at once, so that the cost grows with the request and not with its square.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from taskmill.errors import SubmissionError
from taskmill.model.kin import NO_KIN
from taskmill.model.stages import NewTask
from taskmill.model.status import OnDuplicate
from taskmill.policy.dependencies import find_circle
from taskmill.policy.duplicates import Holder, Name, is_stored
from taskmill.policy.references import depends_on, references, standing_for

WAITS_FOR_ITSELF = "a task would wait for itself: what it depends on waits for it already"


class Knot(msgspec.Struct):
    """How a request is tied to stored tasks. New tasks are numbered downwards from -1."""

    edges: dict[int, list[int]] = msgspec.field(default_factory=dict[int, list[int]])
    """Who waits for whom, as far as the request says."""
    awaited: set[int] = msgspec.field(default_factory=set[int])
    """Stored tasks that new ones wait for."""
    parents: set[int] = msgspec.field(default_factory=set[int])
    replaced: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    """Stored tasks, and the new ones that take their places."""

    @property
    def waiting(self) -> set[int]:
        """Stored tasks that new ones are waited for by, or that are waited for in their stead."""
        return self.parents | self.replaced.keys()

    def closes_circle(self, waits: Iterable[tuple[int, int]]) -> bool:
        """Whether a circle comes about; ``waits`` tells who waits for whom among the stored tasks."""
        edges = {node: [self.replaced.get(on, on) for on in ons] for node, ons in self.edges.items()}
        for waiting, on in waits:
            # What is replaced waits for nobody any longer.
            if waiting not in self.replaced:
                edges.setdefault(waiting, []).append(self.replaced.get(on, on))
        return find_circle(edges) is not None


def tie(request: Sequence[NewTask], holders: Mapping[Name, Holder]) -> Knot:
    """What there is to know about a request before stored tasks are looked at."""
    knot = Knot()
    refs = references(request)
    if isinstance(refs, SubmissionError):
        return knot  # it is refused in any case
    standing = standing_for(request)
    nodes = [_node(request[at], at, holders) for at in standing]
    for at, task in enumerate(request):
        node = nodes[at]
        if standing[at] != at or node > 0:
            continue  # another is stored in its stead, or was
        # A ref that nobody has is refused in any case.
        on = [
            one if isinstance(one, int) else nodes[refs[one]]
            for one in depends_on(task)
            if isinstance(one, int) or one in refs
        ]
        knot.edges.setdefault(node, []).extend(on)
        knot.awaited.update(one for one in on if one > 0)
        parent_id = (task.kin or NO_KIN).parent_id
        if (holder := holder_of(task, holders)) is not None:
            if task.on_duplicate is OnDuplicate.REQUEUE:
                # A run that is added is a sibling of the one it follows.
                parent_id = holder.parent_id
                before = holder.gate_id if holder.rests else holder.id
                if before is not None and not holder.gate_stops:
                    knot.edges[node].append(before)
                    knot.awaited.add(before)
            if holder.rests or task.on_duplicate is OnDuplicate.SUPERSEDE:
                knot.replaced[holder.id] = node
            if task.on_duplicate is OnDuplicate.SUPERSEDE and holder.is_added and holder.gate_id is not None:
                knot.replaced[holder.gate_id] = node
        if parent_id is not None:
            knot.parents.add(parent_id)
            knot.edges.setdefault(parent_id, []).append(node)
    return knot


def holder_of(task: NewTask, holders: Mapping[Name, Holder]) -> Holder | None:
    return None if task.key is None else holders.get((task.type, task.key))


def _node(task: NewTask, at: int, holders: Mapping[Name, Holder]) -> int:
    """A new task, or the stored one that the submission turns out to be."""
    holder = holder_of(task, holders)
    return -1 - at if holder is None or is_stored(task.on_duplicate, holder) else holder.id
