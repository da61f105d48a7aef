"""What a batch of requests to store tasks comes to, given who holds which key.

Requests are judged one after the other, as if each had its own transaction: a later one meets the keys of an earlier
one. Inside one request the last submission of a key wins. A request that is refused stores nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from taskmill.errors import DuplicateTask
from taskmill.model.stages import NewTask, Stored
from taskmill.model.status import Kind, Status
from taskmill.policy.duplicates import Holder, KeepHolder, Refuse, answer_duplicate

Name = tuple[str, str]
"""A task type and a key."""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What became of one submission: the task is a stored one, or the fresh one at this position."""

    kind: Kind
    id: int | None = None
    position: int = -1

    def stored(self, first_id: int) -> Stored:
        return Stored(first_id + self.position if self.id is None else self.id, self.kind)


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """The request stores nothing, because ``holder`` has its key."""

    message: str
    holder: Answer

    def error(self, first_id: int) -> DuplicateTask:
        return DuplicateTask(self.message, existing_id=self.holder.stored(first_id).id)


class InboxPlan(msgspec.Struct):
    """Rows to insert, priorities to raise, and an answer or an error per request."""

    fresh: list[NewTask] = msgspec.field(default_factory=list[NewTask])
    raised: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    answers: list[list[Answer] | Refusal] = msgspec.field(default_factory=list["list[Answer] | Refusal"])


def plan_inbox(requests: Sequence[Sequence[NewTask]], holders: Mapping[Name, Holder]) -> InboxPlan:
    plan = InboxPlan()
    held: dict[Name, Holder | int] = dict(holders)
    """Who holds a key: a stored task, or the fresh one at this position."""
    for request in requests:
        if not any(task.key is not None for task in request):
            first = len(plan.fresh)
            plan.fresh.extend(request)
            plan.answers.append([Answer("inserted", position=first + n) for n in range(len(request))])
        else:
            plan.answers.append(_plan_request(request, held, plan))
    return plan


def _plan_request(
    request: Sequence[NewTask], held: dict[Name, Holder | int], plan: InboxPlan
) -> list[Answer] | Refusal:
    answers: list[Answer] = []
    fresh: list[NewTask] = []
    own: dict[Name, int] = {}
    raised: dict[Name, int] = {}
    first = len(plan.fresh)
    for task in request:
        name = None if task.key is None else (task.type, task.key)
        if name is not None and name in own:
            fresh[own[name]] = task
            answers.append(Answer("inserted", position=first + own[name]))
            continue
        holder = None if name is None else held.get(name)
        if name is None or holder is None:
            if name is not None:
                own[name] = len(fresh)
            answers.append(Answer("inserted", position=first + len(fresh)))
            fresh.append(task)
            continue
        known = holder if isinstance(holder, Holder) else _as_holder(plan.fresh[holder])
        if name in raised:
            known = Holder(known.id, known.status, raised[name])
        at = holder if isinstance(holder, int) else -1
        id = holder.id if isinstance(holder, Holder) else None
        match answer_duplicate(task.on_duplicate, known, task.priority):
            case Refuse():
                return Refusal(f"{task.type}: an active task holds the key {task.key!r}", Answer("duplicate", id, at))
            case KeepHolder(None):
                answers.append(Answer("duplicate", id, at))
            case KeepHolder(priority):
                raised[name] = task.priority if priority is None else priority
                answers.append(Answer("upgraded", id, at))
    _accept(plan, held, fresh, own, raised)
    return answers


def _accept(
    plan: InboxPlan,
    held: dict[Name, Holder | int],
    fresh: list[NewTask],
    own: Mapping[Name, int],
    raised: Mapping[Name, int],
) -> None:
    """The whole request stands: let later ones meet it."""
    first = len(plan.fresh)
    plan.fresh.extend(fresh)
    held.update({name: first + position for name, position in own.items()})
    for name, priority in raised.items():
        holder = held[name]
        if isinstance(holder, int):
            plan.fresh[holder] = msgspec.structs.replace(plan.fresh[holder], priority=priority)
        else:
            plan.raised[holder.id] = priority
            held[name] = Holder(holder.id, holder.status, priority)


def _as_holder(task: NewTask) -> Holder:
    return Holder(UNSTORED, Status(task.status), task.priority)


UNSTORED = 0
"""The id of a task of the same batch, which has none yet."""
