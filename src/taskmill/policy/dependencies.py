"""Decide about dependencies: what an ending means for dependents, and which dependencies a request may have.

Submissions of one request name each other by ``ref``, and name stored tasks by id. Submissions with the same key are
stored as one task, the last of them, so a ``ref`` to any of them means that task.

Cycles are refused. Three relations connect new and stored tasks. A new task waits for the stored tasks it depends on.
A stored parent waits for its children, new ones included. A task that waits for a replaced task waits for the
replacement. All submissions of a request are checked together, so that the cost grows linearly with the request.

Laws: a dependent starts only after all its dependencies have ended; whatever their endings, it is released or it ends,
and it never waits for a task that has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from taskmill.errors import CyclicDependency, DependencyFailed, InvalidDependency, SubmissionError
from taskmill.model.status import Ending, OnDependencyFailure, OnDuplicate
from taskmill.model.task import NO_LINKS, NewTask
from taskmill.policy.duplicates import Holder, Name, is_stored

Answer = Literal["met", "fails", "fails alone"]


def answer_ending(ending: Ending, policy: OnDependencyFailure, *, contained: bool = False) -> Answer:
    """Decide what happens to a dependent when one of its dependencies has ended.

    ``fails alone`` means that the dependent fails but its own dependents do not; for them this function is called with
    ``contained=True``.
    """
    if ending is Ending.COMPLETED or policy is OnDependencyFailure.IGNORE or contained:
        return "met"
    return "fails alone" if policy is OnDependencyFailure.FAIL else "fails"


def find_cycle(edges: Mapping[int, Sequence[int]]) -> list[int] | None:
    """Return the nodes of one cycle, in order, or ``None`` if there is none."""
    done: set[int] = set()
    for start in edges:
        path: list[int] = []
        on_path: set[int] = set()
        stack: list[tuple[int, bool]] = [(start, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                on_path.discard(path.pop())
                done.add(node)
            elif node in on_path:
                return path[path.index(node) :]
            elif node not in done:
                path.append(node)
                on_path.add(node)
                stack.append((node, True))
                stack.extend((following, False) for following in edges.get(node, ()))
    return None


DependencyState = Ending | Literal["active"]


class Needs(msgspec.Struct, frozen=True):
    """The states of the tasks that new tasks depend on, and the requests that would close a cycle with stored tasks."""

    states: Mapping[int, DependencyState] = msgspec.field(default_factory=dict[int, DependencyState])
    circular: Mapping[int, str] = msgspec.field(default_factory=dict[int, str])
    """Maps the number of a request to its error message."""


NO_NEEDS = Needs()


def depends_on(task: NewTask) -> tuple[int | str, ...]:
    return () if task.links is None else task.links.depends_on


def failure_policy(task: NewTask) -> OnDependencyFailure:
    said = task.links.on_dependency_failure if task.links is not None else None
    return OnDependencyFailure.CANCEL if said is None else said


def references(request: Sequence[NewTask]) -> dict[str, int] | SubmissionError:
    """Map each ``ref`` to its index in the request; return an error if two submissions have the same ``ref``."""
    refs: dict[str, int] = {}
    for index, task in enumerate(request):
        if task.links is not None and task.links.ref is not None:
            if task.links.ref in refs:
                return SubmissionError(
                    f"ref: two submissions of one request have the ref {task.links.ref!r}; give each its own"
                )
            refs[task.links.ref] = index
    return refs


def refuse_dependencies(request: Sequence[NewTask], needs: Needs, first_id: int) -> SubmissionError | None:
    """Return the error in the dependencies of a request, or ``None``; ``first_id`` is the next id to be assigned."""
    if not any(task.links is not None and (task.links.depends_on or task.links.ref) for task in request):
        return None
    refs = references(request)
    if isinstance(refs, SubmissionError):
        return refs
    for task in request:
        for dependency in depends_on(task):
            if wrong := _wrong_dependency(dependency, failure_policy(task), refs, needs, first_id):
                return wrong
    return _cycle(request, refs)


def _wrong_dependency(
    dependency: int | str, policy: OnDependencyFailure, refs: Mapping[str, int], needs: Needs, first_id: int
) -> SubmissionError | None:
    if isinstance(dependency, str):
        if dependency in refs:
            return None
        return InvalidDependency(f"depends_on: no submission of this request has the ref {dependency!r}", dependency)
    state = needs.states.get(dependency)
    if state is None:
        if not 0 < dependency < first_id:
            return InvalidDependency(f"depends_on: no task has the id {dependency}", dependency)
        if policy is OnDependencyFailure.IGNORE:
            return None
        what = (
            "has been pruned from history, so its ending is unknown; use on_dependency_failure='ignore' to run anyway"
        )
        return InvalidDependency(f"depends_on: task {dependency} {what}", dependency)
    if state != "active" and answer_ending(state, policy) != "met":
        what = f"has already ended as {state}; use on_dependency_failure='ignore' to run anyway"
        return DependencyFailed(f"depends_on: task {dependency} {what}", dependency)
    return None


def _cycle(request: Sequence[NewTask], refs: Mapping[str, int]) -> CyclicDependency | None:
    """Return the error for a cycle among the submissions themselves, or ``None``."""
    nodes: dict[int, list[int]] = {}
    standing = standing_for(request)
    for index, task in enumerate(request):
        names = [name for name in depends_on(task) if isinstance(name, str)]
        nodes.setdefault(standing[index], []).extend(standing[refs[name]] for name in names)
    cycle = find_cycle(nodes)
    if cycle is None:
        return None
    path = " -> ".join(_called(request[index]) for index in [*cycle, cycle[0]])
    return CyclicDependency(f"depends_on: the submissions wait for each other: {path}")


def standing_for(request: Sequence[NewTask]) -> list[int]:
    """Return, for each submission, the index of the submission that is stored for it."""
    final = {(task.type, task.key): index for index, task in enumerate(request) if task.key is not None}
    return [index if task.key is None else final[task.type, task.key] for index, task in enumerate(request)]


def _called(task: NewTask) -> str:
    return task.links.ref if task.links is not None and task.links.ref is not None else task.key or task.type


WAITS_FOR_ITSELF = "depends_on: a task would wait for itself, because a task it depends on already waits for it"


class RequestLinks(msgspec.Struct):
    """How a request is connected to stored tasks. New tasks are numbered downwards from -1."""

    edges: dict[int, list[int]] = msgspec.field(default_factory=dict[int, list[int]])
    """Maps each waiting task to the tasks that it waits for because of this request."""
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


def tie(request: Sequence[NewTask], holders: Mapping[Name, Holder]) -> RequestLinks:
    """Return the connections of a request, before any stored task is read."""
    links = RequestLinks()
    refs = references(request)
    if isinstance(refs, SubmissionError):
        return links  # the request is refused in any case
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
        links.edges.setdefault(node, []).extend(on)
        links.awaited.update(one for one in on if one > 0)
        parent_id = (task.links or NO_LINKS).parent_id
        if (holder := holder_of(task, holders)) is not None:
            if task.on_duplicate is OnDuplicate.REQUEUE:
                # An added run is a sibling of the run it follows.
                parent_id = holder.parent_id
                before = holder.gate_id if holder.rests else holder.id
                if before is not None and not holder.gate_stops:
                    links.edges[node].append(before)
                    links.awaited.add(before)
            if holder.rests or task.on_duplicate is OnDuplicate.SUPERSEDE:
                links.replaced[holder.id] = node
            if task.on_duplicate is OnDuplicate.SUPERSEDE and holder.is_added and holder.gate_id is not None:
                links.replaced[holder.gate_id] = node
        if parent_id is not None:
            links.parents.add(parent_id)
            links.edges.setdefault(parent_id, []).append(node)
    return links


def holder_of(task: NewTask, holders: Mapping[Name, Holder]) -> Holder | None:
    return None if task.key is None else holders.get((task.type, task.key))


def _node(task: NewTask, at: int, holders: Mapping[Name, Holder]) -> int:
    """Return the number of the new task, or of the stored task that the submission resolves to."""
    holder = holder_of(task, holders)
    return -1 - at if holder is None or is_stored(task.on_duplicate, holder) else holder.id
