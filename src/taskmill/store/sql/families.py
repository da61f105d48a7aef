"""Parents and children in the store: stopping trees, waking parents, spawning.

:mod:`taskmill.policy.families` decides. Functions here that make tasks end return the rows of their endings, which
:mod:`taskmill.store.sql.endings` writes and follows up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from taskmill.errors import InvalidState
from taskmill.model.attempt import StopReason
from taskmill.model.commit import Commit
from taskmill.model.status import Ending, Status
from taskmill.model.task import NO_LINKS, NewTask, Origin
from taskmill.policy.families import (
    ENDING_OF_STOP,
    FAILURES,
    Member,
    ParentTraits,
    StopPlan,
    inherit,
    next_step,
    plan_expiry,
    plan_stop,
)
from taskmill.store.sql.connection import Connection, decode_ids, decode_pairs, encoded, one
from taskmill.store.sql.releasing import let_in, let_siblings_in, release, unhold
from taskmill.store.sql.rows import EndingRow
from taskmill.store.sql.statements import SQL

_decode_members = msgspec.json.Decoder(list[Member], strict=False).decode
_decode_traits = msgspec.json.Decoder(tuple[ParentTraits, int | None]).decode
_decode_outcome = msgspec.json.Decoder(tuple[Ending, str | None, str | None, int | None]).decode


class Parent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A parent of which at least one child has ended."""

    id: int
    status: Status
    stop: str | None
    finalizing: bool
    fail_fast: bool
    max_children: int | None
    outcome: str | None
    has_children: bool
    """True if any child is still active."""
    children_left: int
    hook_left: bool


_decode_parents = msgspec.json.Decoder(list[Parent], strict=False).decode


def parents(connection: Connection, ids: Iterable[int]) -> list[Parent]:
    return _decode_parents(one(connection, SQL["parents"], encoded(list(ids))))


# Stopping trees


def stop_trees(
    connection: Connection, roots: Sequence[int], reason: StopReason, now: int, commit: Commit
) -> list[EndingRow]:
    """Stop these tasks for ``reason`` and cancel their descendants; return the endings that follow at once."""
    members = _tree(connection, roots)
    plan = plan_stop(members, roots)
    own = set(roots)
    _mark(connection, plan, dict.fromkeys(roots, reason), commit)
    return [
        EndingRow(id, ENDING_OF_STOP[reason] if id in own else Ending.CANCELLED, now, None, None, None)
        for id in plan.ends
    ]


def expire_families(connection: Connection, roots: Sequence[int], now: int, commit: Commit) -> list[EndingRow]:
    """Expire these parents, and expire, cancel or keep their descendants as the policy decides; return the endings."""
    plan = plan_expiry(_tree(connection, roots), roots)
    rows = [EndingRow(id, Ending.EXPIRED, now, None, None, None) for id in plan.expires]
    # Release children that outlive their parent: with the parent gone, nothing else would ever let them in.
    held = set(decode_ids(one(connection, SQL["held_children"], encoded(plan.expires)))).difference(plan.expires)
    unhold(connection, sorted(held), now, commit)
    return rows + (stop_trees(connection, plan.stops, StopReason.CANCEL, now, commit) if plan.stops else [])


def _tree(connection: Connection, roots: Sequence[int]) -> list[Member]:
    return _decode_members(one(connection, SQL["tree"], encoded(roots)))


def _mark(connection: Connection, plan: StopPlan, reasons: Mapping[int, StopReason], commit: Commit) -> None:
    """Mark tasks as asked to stop; a task without a reason of its own is cancelled with its parent."""
    marks = [(id, status, reasons.get(id, StopReason.CANCEL)) for id, status in plan.places()]
    if marks:
        connection.execute(SQL["mark_stopped"], (encoded(marks),))
    commit.stopping += [(id, reasons.get(id, StopReason.CANCEL)) for id in plan.running]
    commit.hooks += plan.hooks


# The effect of endings on parents


def follow(connection: Connection, ended: Mapping[int, Ending], now: int, commit: Commit) -> list[EndingRow]:
    """Update the parents of ended tasks: count the children, fail, let the next ones in, or continue after the last."""
    pairs = decode_pairs(one(connection, SQL["parents_of_ended"], encoded(list(ended))))
    if not pairs:
        return []
    children: dict[int, list[int]] = {}
    for child, parent_id in pairs:
        children.setdefault(parent_id, []).append(child)
    counts = [(parent_id, len(ids)) for parent_id, ids in children.items()]
    connection.execute(SQL["count_ended_children"], (encoded(counts),))
    rows: list[EndingRow] = []
    concerned = parents(connection, children)
    has_failed = False
    for parent in concerned:
        failed = next((id for id in children[parent.id] if ended[id] in FAILURES), None)
        if failed is not None and parent.fail_fast and parent.stop is None:
            rows += _fail_with_child(connection, parent, failed, ended[failed], now, commit)
            has_failed = True
    if has_failed:
        # A failure may have changed the state of other parents too, so read them again.
        concerned = parents(connection, children)
    for parent in concerned:
        if not parent.has_children:
            rows += _step(connection, parent, now, commit)
        elif parent.max_children is not None:
            let_in(connection, parent.id, parent.max_children, now, commit)
    return rows


def _fail_with_child(
    connection: Connection, parent: Parent, child: int, ending: Ending, now: int, commit: Commit
) -> list[EndingRow]:
    type, error = connection.execute(SQL["ended_child"], (child,)).fetchone()
    why = f"child {child} ({type}) ended as {ending}" + (f": {error}" if error else "")
    if parent.status is Status.RUNNING:
        commit.stopping.append((parent.id, StopReason.FAIL))
    return fail(connection, parent.id, (Ending.FAILED, None, why, None), now, commit)


Outcome = tuple[Ending, str | None, str | None, int | None]
"""ending, result, error, duration_ms"""


def fail(connection: Connection, id: int, outcome: Outcome, now: int, commit: Commit) -> list[EndingRow]:
    """Fail a task: stop its children, and end it after them."""
    connection.execute(SQL["fail_with_children"], (encoded([(id, encoded(outcome))]),))
    children = decode_ids(one(connection, SQL["live_children"], id))
    rows = stop_trees(connection, children, StopReason.CANCEL, now, commit)
    if not children:
        rows += wake(connection, [id], now, commit)
    return rows


def end_with_children(connection: Connection, id: int, outcome: Outcome, now: int, commit: Commit) -> list[EndingRow]:
    """Fail a task whose attempt is over: stop its children, and end it after them."""
    connection.execute(SQL["attempt_over"], (id,))
    return fail(connection, id, outcome, now, commit)


def await_children(
    connection: Connection, waits: Sequence[tuple[int, str | None, bool]], now: int, commit: Commit
) -> tuple[dict[int, int], list[EndingRow]]:
    """Let tasks wait for their children after an attempt, for rows of ``(id, outcome, finalizing)``.

    Return the number of live children by waiting task, and the endings of tasks that have none left.
    """
    connection.execute(SQL["await_children"], (encoded(waits),))
    waiting: dict[int, int] = {}
    rows: list[EndingRow] = []
    ids = [id for id, _, _ in waits]
    for parent in parents(connection, ids):
        if parent.has_children:
            waiting[parent.id] = parent.children_left
        else:
            rows += _step(connection, parent, now, commit)
    let_siblings_in(connection, ids, now, commit)
    return waiting, rows


def wake(connection: Connection, ids: Sequence[int], now: int, commit: Commit) -> list[EndingRow]:
    """Continue with those of these parents that have no children left; return the endings that follow."""
    rows: list[EndingRow] = []
    for parent in parents(connection, ids):
        if not parent.has_children:
            rows += _step(connection, parent, now, commit)
    return rows


def wake_childless(connection: Connection, now: int, commit: Commit) -> list[EndingRow]:
    """Continue with every waiting parent that has no children left, as a safety net after a crash."""
    return wake(connection, decode_ids(one(connection, SQL["childless"])), now, commit)


def _step(connection: Connection, parent: Parent, now: int, commit: Commit) -> list[EndingRow]:
    match next_step(parent.status, parent.stop, finalizing=parent.finalizing, hook_left=parent.hook_left):
        case "hook":
            connection.execute(SQL["queue_again"], (encoded([parent.id]),))
            commit.hooks.append(parent.id)
        case "stop":
            return [EndingRow(parent.id, ENDING_OF_STOP[parent.stop or StopReason.CANCEL], now, None, None, None)]
        case "finalize":
            # If its own parent has ``max_children``, the task waits until fewer of its siblings are in the queue.
            connection.execute(SQL["await_release"], (parent.id,))
            release(connection, [parent.id], now, commit)
        case "end":
            ending, result, error, duration_ms = _settled(parent)
            return [EndingRow(parent.id, ending, now, duration_ms, result, error)]
        case "stay":
            return []
    return []


def _settled(parent: Parent) -> Outcome:
    if parent.outcome is None:
        return Ending.FAILED, None, "its outcome is missing", None
    return _decode_outcome(parent.outcome)


def spawned_among(connection: Connection, ids: Collection[int]) -> list[int]:
    """Return those of the given tasks that have a parent."""
    return decode_ids(one(connection, SQL["spawned_among"], encoded(list(ids))))


def ancestors(connection: Connection, ids: Iterable[int]) -> set[int]:
    """Return these tasks and their ancestors."""
    return set(decode_ids(one(connection, SQL["ancestors"], encoded(sorted(ids)))))


# Children


def adopt(connection: Connection, tasks: Sequence[NewTask], origin: Origin) -> list[NewTask]:
    """Return the tasks as children or siblings of the attempt that spawns them."""
    found = connection.execute(SQL["spawner"], (origin.id, origin.attempt)).fetchone()
    if found is None:
        raise InvalidState(f"attempt {origin.attempt} of task {origin.id} is over; nothing was spawned")
    parent_id = found[0] if origin.sibling else origin.id
    if parent_id is None:
        return list(tasks)
    if not origin.sibling:
        connection.execute(SQL["become_parent"], (parent_id, origin.fail_fast, origin.max_children))
    row = connection.execute(SQL["traits"], (parent_id,)).fetchone()
    if row is None:
        raise InvalidState(f"task {parent_id}, the parent, has ended or is being stopped; nothing was spawned")
    traits, max_children = _decode_traits(row[0])
    if not origin.sibling:
        traits = msgspec.structs.replace(traits, urgency=min(traits.urgency, origin.effective))
    children = [inherit(task, parent_id, traits) for task in tasks]
    return children if max_children is None else [_held(child) for child in children]


def _held(task: NewTask) -> NewTask:
    links = msgspec.structs.replace(task.links or NO_LINKS, held=True)
    return msgspec.structs.replace(task, links=links, status=Status.BLOCKED)


def count_children(connection: Connection, first_id: int, last_id: int, now: int, commit: Commit) -> None:
    """Count children that were stored with these ids, and let as many into the queue as the parent allows."""
    connection.execute(SQL["count_children"], (first_id, last_id))
    let_siblings_in(connection, range(first_id, last_id + 1), now, commit)
