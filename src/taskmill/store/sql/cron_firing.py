"""Declaring and firing cron tasks, each in one transaction.

Rules: a cron task has at most one active firing. :mod:`taskmill.policy.cron` decides what is due. A new firing replaces
one that waits for a retry, but not one that is running.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, tzinfo

import msgspec

from taskmill.core.cron_port import CronBeginning, CronDeclaration, CronRow, Fired, Firings, Occasion
from taskmill.errors import DuplicateTask, InvalidState, TaskNotFound
from taskmill.model.attempt import StopReason
from taskmill.model.commit import Commit
from taskmill.model.cron import CronState
from taskmill.model.status import Ending
from taskmill.model.task import NewTask
from taskmill.policy.cron.decisions import Due, Reason, due, left_to_another, started
from taskmill.policy.cron.expression import CronExpression
from taskmill.policy.cron.registrations import Difference, reconciled
from taskmill.policy.inbox import Answer, gated
from taskmill.store.sql import cluster, cron, dependencies, families, inbox
from taskmill.store.sql.connection import Connection, decode_ids, encoded, one
from taskmill.store.sql.endings import end_tasks
from taskmill.store.sql.rows import EndingRow
from taskmill.store.sql.schedules import cron_rows
from taskmill.store.sql.statements import SQL


class _Active(msgspec.Struct, array_like=True):
    """The row of a firing that has not ended."""

    id: int
    type: str
    overrides: str | None
    due_at: int | None
    """When its retry is due; None if it does not wait for one."""
    waits: bool
    """True if it waits to run, and no attempt or child has to be stopped before it can be replaced."""
    hook_left: bool
    """True if it has started before and has an ``on_cancel`` hook."""


_decode_active = msgspec.json.Decoder(list[_Active], strict=False).decode


def _active(connection: Connection, stored: Iterable[CronRow]) -> dict[int, _Active]:
    """Return the active firings of these cron tasks, by id."""
    ids = [row.task_id for row in stored if row.task_id is not None]
    return {row.id: row for row in _decode_active(one(connection, SQL["firings"], encoded(ids)))} if ids else {}


# Declaring


def begin(connection: Connection, declared: Sequence[CronDeclaration], now: int, zone: tzinfo) -> CronBeginning:
    """Replace the stored cron tasks by the declared ones.

    A node that declares none does not delete those of other nodes: it simply has no cron tasks.
    """
    if not declared and cluster.others(connection):
        return CronBeginning((), Difference(), Commit())
    stored = {row.state.name: row for row in cron_rows(connection)}
    active = _active(connection, stored.values())
    under_way = {name for name, row in stored.items() if row.state.is_running and row.task_id in active}
    before = {name: _at_rest(row, active, under_way) for name, row in stored.items()}
    outcome = reconciled(before, [each.registration for each in declared], now, zone)
    states = [
        msgspec.structs.replace(cron.at_work(state) if state.name in under_way else state, options=each.options)
        for state, each in zip(outcome.states, declared, strict=True)
    ]
    kept = [stored.get(state.name) for state in states]
    firings = [active.get(row.task_id or 0) if row is not None else None for row in kept]
    ids = [None if firing is None else firing.id for firing in firings]
    rows = [CronRow(state, each.type, id, 0) for each, state, id in zip(declared, states, ids, strict=True)]
    _store_declared(connection, rows, stored)
    _redeclare_firings(connection, declared, states, firings)
    removed = [stored[name] for name in outcome.difference.removed]
    connection.execute(SQL["forget_cron"], (encoded([row.state.name for row in removed]),))
    commit = Commit()
    orphaned = [row.task_id for row in removed if row.task_id is not None and row.task_id in active]
    if orphaned:
        end_tasks(connection, families.stop_trees(connection, orphaned, StopReason.CANCEL, now, commit), now, commit)
    return CronBeginning(states, outcome.difference, commit)


def _at_rest(row: CronRow, active: Mapping[int, _Active], under_way: set[str]) -> CronState:
    """Return the state for reconciliation, in which nothing is running.

    Recovery has already returned the firings that were running. A firing that still has a row waits for a slot, for its
    children, or because it was preempted.
    """
    state = row.state
    if state.firing is None or row.task_id not in active:
        return msgspec.structs.replace(state, firing=None)
    if state.name in under_way:
        return msgspec.structs.replace(state, firing=msgspec.structs.replace(state.firing, retry_at=0))
    return state


def _store_declared(connection: Connection, rows: Sequence[CronRow], stored: Mapping[str, CronRow]) -> None:
    before = [stored.get(row.state.name) for row in rows]
    is_known = all(known is not None and known[:3] == row[:3] for row, known in zip(rows, before, strict=True))
    names = {row.state.name: None for row in rows}
    if is_known and [name for name in stored if name in names] == list(names):
        return  # the usual case: nothing has changed
    values = [
        (row.state.name, position, row.type, encoded(row.state), row.task_id) for position, row in enumerate(rows)
    ]
    connection.execute(SQL["declare_cron"], (encoded(values),))


def _redeclare_firings(
    connection: Connection,
    declared: Sequence[CronDeclaration],
    states: Sequence[CronState],
    firings: Sequence[_Active | None],
) -> None:
    """Update waiting firings to their current declaration; a pending retry keeps its time."""
    changes = [
        (firing.id, each.type, each.payload, each.overrides, state.retry_at)
        for each, state, firing in zip(declared, states, firings, strict=True)
        if firing is not None
        and firing.waits
        and (
            firing.type != each.type
            or firing.overrides != each.overrides
            or (firing.due_at is not None and firing.due_at != state.retry_at)
        )
    ]
    if changes:
        connection.execute(SQL["redeclare_firings"], (encoded(changes),))


# Firing


class _Chosen(msgspec.Struct):
    """An occasion that is due, with its reason and the stored cron task."""

    occasion: Occasion
    why: Due
    row: CronRow


def fire(connection: Connection, occasions: Sequence[Occasion], now: int, zone: tzinfo) -> tuple[Firings, Commit]:
    """Fire the cron tasks that are due.

    The states of tasks that are not due are returned unchanged. A task that is due but whose running firing must end
    first is left out: that ending reports its state.
    """
    stored = {row.state.name: row for row in cron_rows(connection, [each.name for each in occasions])}
    active = _active(connection, stored.values())
    chosen: list[_Chosen] = []
    states: list[CronState] = []
    forgotten = [each.name for each in occasions if each.name not in stored]
    for occasion in occasions:
        row = stored.get(occasion.name)
        if row is None:
            continue
        why = due(row.state, occasion.expression, now, zone)
        if why is None or not why.fires:
            states.append(row.state)
        elif row.task_id not in active or active[row.task_id].waits:
            chosen.append(_Chosen(occasion, why, row))
    if not chosen:
        return Firings((), (), states, forgotten), Commit()
    firings, commit = _fire(connection, chosen, active, now, zone)
    return Firings(firings.fired, firings.left, [*states, *firings.states], forgotten), commit


def run(connection: Connection, name: str, task: NewTask, now: int) -> tuple[Fired, Commit]:
    """Fire a cron task beside its schedule. The new firing replaces one that waits for a retry."""
    connection.be_alone()
    stored = cron_rows(connection, [name])
    if not stored:
        raise TaskNotFound(f"no cron task is named {name!r}; a scheduler stores its list when it starts to dispatch")
    (row,) = stored
    active = _active(connection, stored)
    if row.state.is_running and row.task_id in active:
        raise DuplicateTask(f"cron task {name!r} is active already, as task {row.task_id}", existing_id=row.task_id)
    occasion = Occasion(name, CronExpression.parse(row.state.expression), task)
    firings, commit = _fire(connection, [_Chosen(occasion, Due(Reason.BY_HAND, now), row)], active, now, UTC)
    for _, why in firings.left:
        raise InvalidState(f"cron task {name!r} cannot run now: {why}")
    return firings.fired[0], commit


def _fire(
    connection: Connection, chosen: Sequence[_Chosen], active: Mapping[int, _Active], now: int, zone: tzinfo
) -> tuple[Firings, Commit]:
    olds = [each.row.task_id for each in chosen if each.row.task_id is not None and each.row.task_id in active]
    hooked = [id for id in olds if active[id].hook_left]
    stopped = Commit()
    if hooked:
        families.stop_trees(connection, hooked, StopReason.SUPERSEDE, now, stopped)
    if olds:
        # The rows stay until their dependents can be moved to the replacements, but the keys must be free now.
        connection.execute(SQL["give_up_keys"], (encoded(olds),))
    tasks = [gated(each.occasion.task, each.row.task_id if each.row.task_id in hooked else None) for each in chosen]
    answers, commit = inbox.insert(connection, [[task] for task in tasks], now)
    commit.put_first(stopped)
    stored_ids = [_own_id(answer) for answer in answers]
    # A new firing may already have been replaced by another of this batch with the same key.
    alive = set(decode_ids(one(connection, SQL["still_active"], encoded(stored_ids))))
    fired: list[Fired] = []
    left: list[tuple[str, str]] = []
    changed: list[tuple[CronState, int | None]] = []
    ended: list[tuple[CronState, int | None]] = []
    for each, id, answer in zip(chosen, stored_ids, answers, strict=True):
        state = started(each.row.state, each.occasion.expression, each.why, now, zone)
        # This is no attempt yet: the task may have to wait for a slot, or never start.
        state = msgspec.structs.replace(state, last_attempt_at=each.row.state.last_attempt_at)
        if id is None or id not in alive:
            ended.append((left_to_another(state), None))
            left.append((state.name, _why_not(answer)))
        else:
            changed.append((state, id))
            fired.append(Fired(state.name, each.why.occurrence, id, each.occasion.task))
    connection.execute(SQL["mark_firings"], (encoded([(one.id, one.name) for one in fired]),))
    cron.write(connection, changed, fired=True)
    cron.write(connection, ended)
    _replace(connection, chosen, stored_ids, set(olds), set(hooked), now, commit)
    return Firings(fired, left, [state for state, _ in (*changed, *ended)]), commit


def _own_id(answer: Answer) -> int | None:
    """Return the id of the new task, or None if another task holds its key."""
    if isinstance(answer, list) and answer[0].kind in ("inserted", "superseded"):
        return answer[0].id
    return None


def _why_not(answer: Answer) -> str:
    return f"task {answer[0].id} takes its place" if isinstance(answer, list) else str(answer)


def _replace(
    connection: Connection,
    chosen: Sequence[_Chosen],
    ids: Sequence[int | None],
    olds: set[int],
    hooked: set[int],
    now: int,
    commit: Commit,
) -> None:
    """End the firings that were replaced; those in ``hooked`` end after their ``on_cancel`` hooks."""
    pairs = [
        (each.row.task_id, id)
        for each, id in zip(chosen, ids, strict=True)
        if id is not None and each.row.task_id is not None and each.row.task_id in olds
    ]
    dependencies.point_at_successors(connection, pairs, commit)
    commit.successors.update(pairs)
    endings = [EndingRow(id, Ending.SUPERSEDED, now, None, None, None) for id in sorted(olds - hooked)]
    end_tasks(connection, endings, now, commit)
