"""Plan how to store a batch of requests, given the active tasks that hold keys and the state of dependencies.

Requests are judged one after the other, as if each had its own transaction: a later request sees the keys of an earlier
one. Inside one request the last submission of a key wins. A refused request stores nothing. The refusal is known before
the request has changed the plan, because one request uses each key once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from taskmill.errors import CyclicDependency, DuplicateTask, SubmissionError
from taskmill.model.status import Kind, Status
from taskmill.model.submission import Stored
from taskmill.model.task import NO_LINKS, Links, NewTask
from taskmill.policy.dependencies import (
    NO_NEEDS,
    WAITS_FOR_ITSELF,
    Needs,
    depends_on,
    failure_policy,
    find_cycle,
    references,
    refuse_dependencies,
)
from taskmill.policy.duplicates import AddRun, Holder, KeepHolder, Name, RenewAdded, Replace, answer_duplicate, refuses

NOTHING_SAVED = "{}"


class Keys(msgspec.Struct):
    """The tasks that hold keys, and the former holders that were asked to stop and have not ended yet."""

    holders: dict[Name, Holder] = msgspec.field(default_factory=dict[Name, Holder])
    stopping: dict[Name, int] = msgspec.field(default_factory=dict[Name, int])

    def copy(self) -> Keys:
        return Keys(dict(self.holders), dict(self.stopping))


class Superseding(NamedTuple):
    """``new_id`` replaces ``old_id``: at once if ``waits``, else when the attempt of ``old_id`` has ended."""

    old_id: int
    new_id: int
    waits: bool
    is_tied: bool = False
    """True if the old task has a parent or a series, which its replacement inherits."""


Answer = list[Stored] | SubmissionError


class InboxPlan(msgspec.Struct):
    """Rows to insert from ``first_id`` on, changes to stored rows, and an answer or an error per request."""

    first_id: int
    fresh: list[NewTask] = msgspec.field(default_factory=list[NewTask])
    raised: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    gave_keys: list[int] = msgspec.field(default_factory=list[int])
    """Tasks whose keys pass to runs that were added after them."""
    renewed: dict[int, NewTask] = msgspec.field(default_factory=dict[int, NewTask])
    """Runs that were added earlier, with the values of the newest submission."""
    superseded: list[Superseding] = msgspec.field(default_factory=list[Superseding])
    ended_series: list[int] = msgspec.field(default_factory=list[int])
    """Recurring series that other series replace."""
    edges: list[tuple[int, int, bool]] = msgspec.field(default_factory=list[tuple[int, int, bool]])
    """Dependencies of new tasks: ``(task, on, open)``."""
    answers: list[Answer] = msgspec.field(default_factory=list[Answer])

    def next_id(self) -> int:
        return self.first_id + len(self.fresh)

    def add(self, task: NewTask) -> int:
        self.fresh.append(task)
        return self.next_id() - 1

    def row(self, id: int) -> NewTask:
        """Return a row of this plan, to be inserted or overwritten."""
        return self.renewed[id] if id < self.first_id else self.fresh[id - self.first_id]

    def put(self, id: int, task: NewTask) -> None:
        """Overwrite a row of this plan, or plan to overwrite a stored one."""
        if id < self.first_id:
            self.renewed[id] = task
        else:
            self.fresh[id - self.first_id] = task

    def change(self, id: int, **changes: object) -> None:
        self.put(id, msgspec.structs.replace(self.row(id), **changes))


def plan_inbox(requests: Sequence[Sequence[NewTask]], known: Keys, first_id: int, needs: Needs = NO_NEEDS) -> InboxPlan:
    """Plan a batch, at a cost linear in its tasks. ``known`` is not modified."""
    plan, keys = InboxPlan(first_id), known.copy()
    for number, request in enumerate(requests):
        if len(request) == 1 and request[0].links is None:
            # Fast path for almost every request.
            plan.answers.append(_plan_single(request[0], keys, plan))
            continue
        last = {(task.type, task.key): task for task in request if task.key is not None}
        refusal = _refusal(last, keys) or refuse_dependencies(request, needs, first_id)
        if refusal is None and number in needs.circular:
            refusal = CyclicDependency(needs.circular[number])
        plan.answers.append(_plan_request(request, last, keys, plan, needs) if refusal is None else refusal)
    if plan.edges and plan.superseded and (offender := _closes_cycle_by_replacing(plan)) is not None:
        return plan_inbox(
            requests, known, first_id, Needs(needs.states, {**needs.circular, offender: WAITS_FOR_ITSELF})
        )
    return plan


def _closes_cycle_by_replacing(plan: InboxPlan) -> int | None:
    """Return the last request of a cycle that arises because this batch replaces tasks that others depend on."""
    successors = {one.old_id: one.new_id for one in plan.superseded}
    nodes: dict[int, list[int]] = {}
    for task_id, on_id, _ in plan.edges:
        while on_id in successors:
            on_id = successors[on_id]  # noqa: PLW2901 - the last of a chain
        nodes.setdefault(task_id, []).append(on_id)
    cycle = find_cycle(nodes)
    if cycle is None:
        return None
    requests = {
        stored.id: number for number, answer in enumerate(plan.answers) if isinstance(answer, list) for stored in answer
    }
    return max(requests[id] for id in cycle)


def _plan_single(task: NewTask, keys: Keys, plan: InboxPlan) -> Answer:
    if task.key is None:
        return [Stored(plan.add(task), "inserted")]
    name = (task.type, task.key)
    refusal = _refusal({name: task}, keys) if refuses(task.on_duplicate) else None
    return [_plan_named(name, task, keys, plan)] if refusal is None else refusal


def _refusal(last: Mapping[Name, NewTask], keys: Keys) -> DuplicateTask | None:
    for name, task in last.items():
        if refuses(task.on_duplicate) and (holder := keys.holders.get(name)) is not None:
            return DuplicateTask(f"{task.type}: task {holder.id} holds the key {task.key!r}", existing_id=holder.id)
    return None


def _plan_request(
    request: Sequence[NewTask], last: Mapping[Name, NewTask], keys: Keys, plan: InboxPlan, needs: Needs
) -> list[Stored]:
    stored: dict[Name, Stored] = {}
    answers: list[Stored] = []
    for task in request:
        if task.key is None:
            answers.append(Stored(plan.add(task), "inserted"))
            continue
        name = (task.type, task.key)
        if name not in stored:
            stored[name] = _plan_named(name, last[name], keys, plan)
        answers.append(stored[name])
    if any(depends_on(task) for task in request):
        _link(request, last, answers, plan, needs)
    return answers


def _link(
    request: Sequence[NewTask],
    last: Mapping[Name, NewTask],
    answers: Sequence[Stored],
    plan: InboxPlan,
    needs: Needs,
) -> None:
    """Add the dependencies of new tasks to the plan, and block the tasks that have an open one."""
    refs = references(request)
    assert isinstance(refs, dict)  # noqa: S101 - the request was not refused
    for task, stored in zip(request, answers, strict=True):
        is_new = stored.kind in ("inserted", "superseded", "requeued")
        is_last = task.key is None or last[task.type, task.key] is task
        if not depends_on(task) or not is_new or not is_last:
            continue
        waits = False
        for dependency in depends_on(task):
            if isinstance(dependency, str):
                on_id, is_open = answers[refs[dependency]].id, True
            else:
                on_id, is_open = dependency, needs.states.get(dependency) == "active"
            plan.edges.append((stored.id, on_id, is_open))
            waits = waits or is_open
        row = plan.row(stored.id)
        links = msgspec.structs.replace(row.links or NO_LINKS, on_dependency_failure=failure_policy(task))
        plan.change(stored.id, links=links, status=Status.BLOCKED if waits else row.status)


def _plan_named(name: Name, task: NewTask, keys: Keys, plan: InboxPlan) -> Stored:
    holder = keys.holders.get(name)
    if holder is None:
        return _store(name, gated(task, keys.stopping.get(name)), "inserted", keys, plan)
    match answer_duplicate(task.on_duplicate, holder, task.priority):
        case KeepHolder(None):
            return Stored(holder.id, "duplicate")
        case KeepHolder(priority):
            _raise(name, task.priority if priority is None else priority, keys, plan)
            return Stored(holder.id, "upgraded")
        case AddRun():
            return _add_run(name, task, holder, keys, plan)
        case RenewAdded(supersedes):
            return _renew(name, task, holder, keys, plan, supersedes=supersedes)
        case Replace(gate_id, ends_at_once):
            waits_now = holder.rests and _status_when_free(task) is Status.PENDING
            keeps_place = waits_now and holder.queued_at <= task.queued_at
            is_tied = holder.parent_id is not None or holder.series_id is not None
            plan.superseded.append(Superseding(holder.id, plan.next_id(), ends_at_once, is_tied))
            if holder.id >= plan.first_id:
                # Replaced before it was stored: it must not hold its key once it is.
                plan.change(holder.id, stop="supersede")
            if not ends_at_once:
                keys.stopping[name] = holder.id
            task = msgspec.structs.replace(
                task,
                queued_at=holder.queued_at if keeps_place else task.queued_at,
                place_id=(holder.place_id or holder.id) if keeps_place else None,
                replaced=holder.saved or NOTHING_SAVED,
                links=_links_of_replacement(task, holder, plan) if is_tied else task.links,
            )
            if holder.is_capped and task.links is not None and task.links.parent_id == holder.parent_id:
                task = _among_siblings(task, holder, gate_id)
            return _store(name, gated(task, gate_id), "superseded", keys, plan, holder)


def _add_run(name: Name, task: NewTask, holder: Holder, keys: Keys, plan: InboxPlan) -> Stored:
    """Store a separate run after the one under way, with the same key, parent and series."""
    plan.gave_keys.append(holder.id)
    keys.stopping[name] = holder.id
    if holder.parent_id is not None or holder.series_id is not None or task.links is not None:
        # If the run under way submitted this one, do not make it a child: each would wait for the other.
        links = msgspec.structs.replace(task.links or NO_LINKS, parent_id=holder.parent_id, held=False)
        task = msgspec.structs.replace(task, links=links)
        task = msgspec.structs.replace(task, links=_links_of_replacement(task, holder, plan))
    if holder.is_capped:
        task = _among_siblings(task, holder, holder.id)
    stored = _store(name, gated(task, holder.id), "requeued", keys, plan)
    keys.holders[name] = msgspec.structs.replace(
        keys.holders[name], is_added=True, is_capped=holder.is_capped, gate_stops=False
    )
    return stored


def _renew(name: Name, task: NewTask, holder: Holder, keys: Keys, plan: InboxPlan, *, supersedes: bool) -> Stored:
    """Overwrite the run added earlier with the newest submission; with ``supersedes`` it replaces the one under way."""
    assert holder.gate_id is not None  # noqa: S101 - it was added after another
    if supersedes:
        plan.superseded.append(Superseding(holder.gate_id, holder.id, waits=False, is_tied=True))
        task = msgspec.structs.replace(task, replaced=NOTHING_SAVED)
    links = (
        _links_of_replacement(task, holder, plan) if holder.series_id is not None or task.links is not None else None
    )
    if links is not None or holder.parent_id is not None:
        links = msgspec.structs.replace(links or NO_LINKS, parent_id=holder.parent_id, held=holder.is_held)
    plan.put(holder.id, gated(msgspec.structs.replace(task, links=links), holder.gate_id))
    plan.edges = [edge for edge in plan.edges if edge[0] != holder.id]
    plan.raised.pop(holder.id, None)
    keys.holders[name] = msgspec.structs.replace(
        holder,
        priority=task.priority,
        queued_at=task.queued_at,
        place_id=None,
        saved=task.replaced,
        gate_stops=holder.gate_stops or supersedes,
    )
    return Stored(holder.id, "superseded", holder.gate_id) if supersedes else Stored(holder.id, "requeued")


def _links_of_replacement(task: NewTask, holder: Holder, plan: InboxPlan) -> Links:
    """Return the links of a replacement, which takes over the parent and the series occurrence of the old task."""
    links = task.links or NO_LINKS
    if holder.parent_id is not None and links.parent_id is None:
        links = msgspec.structs.replace(links, parent_id=holder.parent_id)
    if holder.series_id is not None:
        if links.every_ms is None:
            links = msgspec.structs.replace(links, series_id=holder.series_id)
        else:
            plan.ended_series.append(holder.series_id)
    return links


def _among_siblings(task: NewTask, holder: Holder, gate_id: int | None) -> NewTask:
    """Give a replacement the old task's place in the queue, or let it wait for one, if its siblings there are limited.

    A replacement that cannot run yet does not keep the place, because it may wait for a sibling that needs it.
    """
    takes_place = holder.ends_at_once and not holder.is_held and gate_id is None and not depends_on(task)
    return msgspec.structs.replace(
        task,
        links=msgspec.structs.replace(task.links or NO_LINKS, held=not takes_place),
        status=_status_when_free(task) if takes_place else Status.BLOCKED,
    )


def _status_when_free(task: NewTask) -> Status:
    """Return the status that a new task would have without a limit on its siblings."""
    if task.links is None or not task.links.held:
        return task.status
    return Status.PENDING if task.due_at is None else Status.SCHEDULED


def _store(
    name: Name, task: NewTask, kind: Kind, keys: Keys, plan: InboxPlan, replaced: Holder | None = None
) -> Stored:
    id = plan.add(task)
    links = task.links or NO_LINKS
    has_same_parent = replaced is not None and replaced.parent_id == links.parent_id
    keys.holders[name] = Holder(
        id,
        task.status,
        task.priority,
        task.queued_at,
        task.gate_id,
        links.parent_id,
        links.series_id,
        saved=task.replaced,
        is_held=links.held,
        is_capped=links.held or (has_same_parent and replaced is not None and replaced.is_capped),
        place_id=task.place_id,
    )
    return Stored(id, kind, None if replaced is None else replaced.id)


def gated(task: NewTask, gate_id: int | None) -> NewTask:
    """Return ``task``, blocked until the task ``gate_id`` has ended."""
    if gate_id is None:
        return task
    return msgspec.structs.replace(task, status=Status.BLOCKED, gate_id=gate_id)


def _raise(name: Name, priority: int, keys: Keys, plan: InboxPlan) -> None:
    holder = keys.holders[name]
    keys.holders[name] = msgspec.structs.replace(holder, priority=priority)
    if holder.id >= plan.first_id or holder.id in plan.renewed:
        plan.change(holder.id, priority=priority)
    else:
        plan.raised[holder.id] = priority
