"""Check the dependencies of one request: submissions name each other by ``ref``, and name stored tasks by id.

Submissions with the same key are stored as one task, the last of them, so a ``ref`` to any of them means that task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from taskmill.errors import CyclicDependency, DependencyFailed, InvalidDependency, SubmissionError
from taskmill.model.status import Ending, OnDependencyFailure
from taskmill.model.task import NewTask
from taskmill.policy.dependencies import answer_ending, find_cycle

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
    """Return the index in the request of each ``ref``, or an error if two submissions have the same."""
    refs: dict[str, int] = {}
    for index, task in enumerate(request):
        if task.links is not None and task.links.ref is not None:
            if task.links.ref in refs:
                return SubmissionError(f"ref: two submissions of one request have the ref {task.links.ref!r}")
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
        return DependencyFailed(f"depends_on: task {dependency} has already ended as {state}", dependency)
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
