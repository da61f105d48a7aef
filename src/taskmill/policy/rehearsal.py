"""Find which submissions of a refused request are the reason, for ``dry_run``.

``submit_many`` stores all of its submissions or none. To say which of them are refused, the request is split into parts
that do not depend on each other: submissions connected by ``ref`` names or by a key belong to one part.

Law: submissions of different parts share neither a key nor a ``ref``, so a part is refused by itself if, and only if,
it is refused beside the others, except for cycles that lead through stored tasks.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import msgspec

from taskmill.errors import DependencyFailed, DuplicateTask, InvalidDependency, SubmissionError
from taskmill.model.submission import Stored
from taskmill.model.task import NewTask
from taskmill.policy.dependencies import depends_on
from taskmill.policy.duplicates import Holder, Name, refuses
from taskmill.policy.inbox import InboxPlan


class Rehearsal(msgspec.Struct, frozen=True):
    """What would become of the submissions of one request."""

    stored: Mapping[int, Stored]
    """By index: the results of the submissions that are not refused."""
    errors: Mapping[int, SubmissionError]
    """By index: why a submission is refused."""
    plan: InboxPlan
    """How the submissions that are not refused would be stored."""


def connected_parts(tasks: Sequence[NewTask], among: Sequence[int]) -> list[list[int]]:
    """Split the submissions with the given indexes into parts, each in input order."""
    found: dict[int, int] = {index: index for index in among}

    def root(index: int) -> int:
        while found[index] != index:
            found[index] = found[found[index]]
            index = found[index]
        return index

    first: dict[Hashable, int] = {}
    for index in among:
        for name in _names(tasks[index]):
            other = first.setdefault(name, index)
            one, two = sorted((root(index), root(other)))
            found[two] = one
    parts: dict[int, list[int]] = {}
    for index in among:
        parts.setdefault(root(index), []).append(index)
    return list(parts.values())


def reasons(
    tasks: Sequence[NewTask], part: Sequence[int], wrong: SubmissionError, holders: Mapping[Name, Holder]
) -> list[int]:
    """Return the submissions of a refused part that are the reason; all of them if only all together are."""
    found: list[int] = []
    if isinstance(wrong, DuplicateTask):
        # Inside one request the last submission of a key wins.
        last = {(task.type, task.key): index for index in part if (task := tasks[index]).key is not None}
        found = [
            index
            for (type, key), index in last.items()
            if key is not None and (holder := holders.get((type, key))) is not None
            if holder.id == wrong.existing_id and refuses(tasks[index].on_duplicate)
        ]
    elif isinstance(wrong, InvalidDependency | DependencyFailed):
        found = [index for index in part if wrong.id in depends_on(tasks[index])]
    return found or list(part)


def _names(task: NewTask) -> list[Hashable]:
    """Return the names that connect a submission to others: its key, its ``ref``, and those it depends on."""
    names: list[Hashable] = [] if task.key is None else [(task.type, task.key)]
    if task.links is not None and task.links.ref is not None:
        names.append(task.links.ref)
    return [*names, *(name for name in depends_on(task) if isinstance(name, str))]
