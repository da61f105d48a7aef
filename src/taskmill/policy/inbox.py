"""What a batch of requests to store tasks comes to, given who holds which key.

Requests are judged one after the other, as if each had its own transaction: a later one meets the keys of an earlier
one. Inside one request the last submission of a key wins. A request that is refused stores nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from taskmill.errors import DuplicateTask
from taskmill.model.stages import NewTask, Stored
from taskmill.model.status import Kind, Status
from taskmill.policy.duplicates import Holder, KeepHolder, Refuse, Replace, RunAgain, answer_duplicate

Name = tuple[str, str]
"""A task type and a key."""


class Keys(msgspec.Struct):
    """Who has which key: those that hold it, and those that were asked to stop and have not ended yet."""

    holders: dict[Name, Holder] = msgspec.field(default_factory=dict[Name, Holder])
    stopping: dict[Name, int] = msgspec.field(default_factory=dict[Name, int])

    def copy(self) -> Keys:
        return Keys(dict(self.holders), dict(self.stopping))


class Superseding(NamedTuple):
    """``old_id`` is replaced by ``new_id``; at once if it waits, else when its attempt has ended."""

    old_id: int
    new_id: int
    waits: bool


class InboxPlan(msgspec.Struct):
    """Rows to insert from ``first_id`` on, what becomes of stored ones, and an answer or an error per request."""

    first_id: int
    fresh: list[NewTask] = msgspec.field(default_factory=list[NewTask])
    raised: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    again: dict[int, NewTask] = msgspec.field(default_factory=dict[int, NewTask])
    superseded: list[Superseding] = msgspec.field(default_factory=list[Superseding])
    answers: list[list[Stored] | DuplicateTask] = msgspec.field(default_factory=list["list[Stored] | DuplicateTask"])

    def next_id(self) -> int:
        return self.first_id + len(self.fresh)

    def add(self, task: NewTask) -> int:
        self.fresh.append(task)
        return self.next_id() - 1


def plan_inbox(requests: Sequence[Sequence[NewTask]], keys: Keys, first_id: int) -> InboxPlan:
    plan = InboxPlan(first_id)
    for request in requests:
        if any(task.key is not None for task in request):
            draft, after = _copy(plan), keys.copy()
            answer = _plan_request(request, after, draft)
            if isinstance(answer, DuplicateTask):
                plan.answers.append(answer)
            else:
                draft.answers.append(answer)
                plan, keys = draft, after
        else:
            plan.answers.append([Stored(plan.add(task), "inserted") for task in request])
    return plan


def _copy(plan: InboxPlan) -> InboxPlan:
    return InboxPlan(
        plan.first_id, list(plan.fresh), dict(plan.raised), dict(plan.again), list(plan.superseded), list(plan.answers)
    )


def _plan_request(request: Sequence[NewTask], keys: Keys, plan: InboxPlan) -> list[Stored] | DuplicateTask:
    last = {(task.type, task.key): task for task in request if task.key is not None}
    stored: dict[Name, Stored] = {}
    answers: list[Stored] = []
    for task in request:
        if task.key is None:
            answers.append(Stored(plan.add(task), "inserted"))
            continue
        name = (task.type, task.key)
        if name not in stored:
            answer = _plan_named(name, last[name], keys, plan)
            if isinstance(answer, DuplicateTask):
                return answer
            stored[name] = answer
        answers.append(stored[name])
    return answers


def _plan_named(name: Name, task: NewTask, keys: Keys, plan: InboxPlan) -> Stored | DuplicateTask:
    holder = keys.holders.get(name)
    if holder is None:
        return _store(name, _gated(task, keys.stopping.get(name)), "inserted", keys, plan)
    match answer_duplicate(task.on_duplicate, holder, task.priority):
        case Refuse():
            return DuplicateTask(f"{task.type}: task {holder.id} holds the key {task.key!r}", existing_id=holder.id)
        case KeepHolder(None):
            return Stored(holder.id, "duplicate")
        case KeepHolder(priority):
            _raise(name, task.priority if priority is None else priority, keys, plan)
            return Stored(holder.id, "upgraded")
        case RunAgain():
            plan.again[holder.id] = task
            return Stored(holder.id, "requeued")
        case Replace(gate_id, keeps_place):
            if keeps_place and task.status is Status.PENDING:
                task = msgspec.structs.replace(task, queued_at=min(task.queued_at, holder.queued_at))
            plan.superseded.append(Superseding(holder.id, plan.next_id(), waits=holder.waits_to_run))
            _leave_key(holder, plan)
            if not holder.waits_to_run:
                keys.stopping[name] = holder.id
            return _store(name, _gated(task, gate_id), "superseded", keys, plan, holder.id)


def _store(
    name: Name, task: NewTask, kind: Kind, keys: Keys, plan: InboxPlan, replaced_id: int | None = None
) -> Stored:
    id = plan.add(task)
    keys.holders[name] = Holder(id, task.status, task.priority, task.queued_at, task.gate_id)
    return Stored(id, kind, replaced_id)


def _gated(task: NewTask, gate_id: int | None) -> NewTask:
    if gate_id is None:
        return task
    return msgspec.structs.replace(task, status=Status.BLOCKED, gate_id=gate_id)


def _leave_key(holder: Holder, plan: InboxPlan) -> None:
    """A task of the same batch that is replaced before it was stored must not hold its key when it is."""
    if holder.id >= plan.first_id:
        at = holder.id - plan.first_id
        plan.fresh[at] = msgspec.structs.replace(plan.fresh[at], stop="supersede")


def _raise(name: Name, priority: int, keys: Keys, plan: InboxPlan) -> None:
    holder = keys.holders[name]
    keys.holders[name] = msgspec.structs.replace(holder, priority=priority)
    if holder.id >= plan.first_id:
        at = holder.id - plan.first_id
        plan.fresh[at] = msgspec.structs.replace(plan.fresh[at], priority=priority)
    else:
        plan.raised[holder.id] = priority
