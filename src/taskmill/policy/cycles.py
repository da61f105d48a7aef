"""Find dependency cycles that a request would close with stored tasks.

Three relations connect new and stored tasks. A new task waits for the stored tasks it depends on. A stored parent waits
for its children, new ones included. A task that waits for a replaced task waits for the replacement. All submissions
of a request are checked together, so that the cost grows linearly with the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from taskmill.errors import SubmissionError
from taskmill.model.status import OnDuplicate
from taskmill.model.task import NO_LINKS, NewTask
from taskmill.policy.dependencies import find_cycle
from taskmill.policy.duplicates import Holder, Name, is_stored
from taskmill.policy.references import depends_on, references, standing_for

WAITS_FOR_ITSELF = "depends_on: a task would wait for itself, because a task it depends on already waits for it"


class Knot(msgspec.Struct):
    """How a request is connected to stored tasks. New tasks are numbered downwards from -1."""

    edges: dict[int, list[int]] = msgspec.field(default_factory=dict[int, list[int]])
    """Maps each waiting task to the tasks it waits for, as far as the request says."""
    awaited: set[int] = msgspec.field(default_factory=set[int])
    """Stored tasks that new tasks wait for."""
    parents: set[int] = msgspec.field(default_factory=set[int])
    replaced: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    """Maps stored tasks to the new tasks that replace them."""

    @property
    def waiting(self) -> set[int]:
        """Stored tasks that will wait for new tasks, or that new tasks replace."""
        return self.parents | self.replaced.keys()

    def closes_cycle(self, waits: Iterable[tuple[int, int]]) -> bool:
        """True if the request closes a cycle; ``waits`` has pairs of stored tasks, the first waiting for the second."""
        edges = {node: [self.replaced.get(on, on) for on in ons] for node, ons in self.edges.items()}
        for waiting, on in waits:
            # A replaced task no longer waits for anything.
            if waiting not in self.replaced:
                edges.setdefault(waiting, []).append(self.replaced.get(on, on))
        return find_cycle(edges) is not None


def tie(request: Sequence[NewTask], holders: Mapping[Name, Holder]) -> Knot:
    """Return the connections of a request, before any stored task is read."""
    knot = Knot()
    refs = references(request)
    if isinstance(refs, SubmissionError):
        return knot  # the request is refused anyway
    standing = standing_for(request)
    nodes = [_node(request[at], at, holders) for at in standing]
    for at, task in enumerate(request):
        node = nodes[at]
        if standing[at] != at or node > 0:
            continue  # another task, new or stored, represents this submission
        # A request with an unknown ref is refused anyway.
        on = [
            one if isinstance(one, int) else nodes[refs[one]]
            for one in depends_on(task)
            if isinstance(one, int) or one in refs
        ]
        knot.edges.setdefault(node, []).extend(on)
        knot.awaited.update(one for one in on if one > 0)
        parent_id = (task.links or NO_LINKS).parent_id
        if (holder := holder_of(task, holders)) is not None:
            if task.on_duplicate is OnDuplicate.REQUEUE:
                # An added run is a sibling of the run it follows.
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
    """Return the number of the new task, or of the stored task that the submission resolves to."""
    holder = holder_of(task, holders)
    return -1 - at if holder is None or is_stored(task.on_duplicate, holder) else holder.id
