"""Dependencies in the store: edges, the effect of endings on dependents, and priority inheritance.

A task that waits lends its urgency to the tasks it waits for, so that a more urgent task is not held up by a less
urgent one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from taskmill.model.commit import Commit
from taskmill.model.status import Ending, OnDependencyFailure
from taskmill.policy.dependencies import DependencyState, answer_ending
from taskmill.store.sql.connection import Connection, decode_ids, decode_pairs, encoded, one
from taskmill.store.sql.releasing import release
from taskmill.store.sql.rows import EndingRow, describe
from taskmill.store.sql.statements import SQL

_decode_states = msgspec.json.Decoder(list[tuple[int, bool, Ending | None]], strict=False).decode
_decode_dependents = msgspec.json.Decoder(list[tuple[int, int, OnDependencyFailure, bool]], strict=False).decode


def states(connection: Connection, ids: Iterable[int]) -> dict[int, DependencyState]:
    """Return the states of these tasks by id; unknown ids are missing."""
    wanted = sorted(set(ids))
    if not wanted:
        return {}
    found = _decode_states(one(connection, SQL["states"], encoded(wanted)))
    known: dict[int, DependencyState] = {}
    for id, is_active, ending in found:
        if is_active:
            known[id] = "active"
        elif ending is not None:
            known[id] = ending
    return known


def waits_for(connection: Connection, ids: Iterable[int], others: Iterable[int]) -> bool:
    """True if any of ``ids`` is among ``others``, or waits directly or indirectly for one of them."""
    return bool(one(connection, SQL["reaches"], encoded(sorted(ids)), encoded(sorted(others))))


def waits_below(connection: Connection, ids: Iterable[int]) -> list[tuple[int, int]]:
    """Return ``(task, task it waits for)`` for these tasks and all tasks that they wait for."""
    return decode_pairs(one(connection, SQL["waits_below"], encoded(sorted(ids))))


def link(
    connection: Connection, edges: Sequence[tuple[int, int, bool]], urgencies: Mapping[int, int], commit: Commit
) -> None:
    """Store edges ``(task, on, open)``, and lend the urgency of tasks to those they wait for."""
    connection.execute(SQL["insert_edges"], (encoded(edges),))
    awaited = sorted({on_id for _, on_id, is_open in edges if is_open})
    if awaited:
        connection.execute(SQL["mark_awaited"], (encoded(awaited),))
        lent: dict[int, int] = {}
        for task, on_id, is_open in edges:
            if is_open:
                lent[on_id] = min(urgencies[task], lent.get(on_id, urgencies[task]))
        lend(connection, lent.items(), commit)


def point_at_successors(connection: Connection, pairs: Sequence[tuple[int, int]], commit: Commit) -> None:
    """Make the dependents of replaced tasks wait for the replacement; in a chain, for the last one."""
    successor = dict(pairs)
    final: list[tuple[int, int]] = []
    for old, new in pairs:
        last = new
        while last in successor:
            last = successor[last]
        final.append((old, last))
    moved = connection.execute(SQL["point_at_successors"], (encoded(final),)).rowcount
    # An edge that was not moved belongs to a dependent that already has an edge to the replacement.
    moved += connection.execute(SQL["forget_edges_onto"], (encoded(list(successor)),)).rowcount
    if moved:
        successors = [new for _, new in final]
        connection.execute(SQL["mark_awaited"], (encoded(successors),))
        reckon(connection, successors, commit)


def follow(
    connection: Connection,
    ended: Mapping[int, Ending],
    contained: set[int],
    gates: Mapping[int, int],
    now: int,
    commit: Commit,
) -> list[EndingRow]:
    """Release the dependents of ended tasks; return the endings of those that fail because of them.

    ``contained`` holds tasks whose failure does not spread to their dependents; tasks that fail alone are added to it.
    ``gates`` maps ended tasks to the tasks that they had to wait for, such as a replacement to the replaced task. If
    that task has not ended yet, dependents now wait for its end.
    """
    given = encoded(list(ended))
    met: list[tuple[int, int]] = []
    handed_on: list[tuple[int, int, bool]] = []
    rows: list[EndingRow] = []
    for task_id, on_id, policy, awaits_end in _decode_dependents(one(connection, SQL["dependents"], given)):
        answer = answer_ending(ended[on_id], policy, contained=on_id in contained or awaits_end)
        if answer == "met":
            met.append((task_id, on_id))
            if on_id in gates and gates[on_id] not in ended:
                handed_on.append((task_id, gates[on_id], True))
            continue
        if answer == "fails alone":
            contained.add(task_id)
        why = f"task {on_id}, which it depends on, ended as {ended[on_id]}"
        rows.append(EndingRow(task_id, Ending.DEPENDENCY_FAILED, now, None, None, why))
    if met:
        connection.execute(SQL["close_edges"], (encoded(met),))
        if handed_on:
            _hand_on(connection, handed_on, commit)
        waited = sorted({task_id for task_id, _ in met})
        # Siblings, or the attempt that a task replaces, may still hold it back.
        if unblocked := decode_ids(one(connection, SQL["without_open_edges"], encoded(waited))):
            commit.unblocked += describe(connection, unblocked)
            release(connection, unblocked, now, commit)
    if any(ending is not Ending.COMPLETED for ending in ended.values()):
        _withdraw(connection, given, commit)
    return rows


def _hand_on(connection: Connection, edges: Sequence[tuple[int, int, bool]], commit: Commit) -> None:
    """Make tasks that already wait depend on further tasks."""
    connection.execute(SQL["insert_edges"], (encoded(edges),))
    awaited = sorted({on_id for _, on_id, _ in edges})
    connection.execute(SQL["mark_awaited"], (encoded(awaited),))
    reckon(connection, awaited, commit)


def drop(connection: Connection, ids: Sequence[int], commit: Commit) -> None:
    """Delete the dependencies of these tasks."""
    given = encoded(list(ids))
    _withdraw(connection, given, commit)
    connection.execute(SQL["forget_edges"], (given,))


def _withdraw(connection: Connection, ended: str, commit: Commit) -> None:
    """Close the dependencies of these tasks, and stop lending urgency through them."""
    edges = decode_pairs(one(connection, SQL["open_edges_of"], ended))
    if edges:
        connection.execute(SQL["close_edges"], (encoded(edges),))
        reckon(connection, sorted({on_id for _, on_id in edges}), commit)


def lend(connection: Connection, urgencies: Iterable[tuple[int, int]], commit: Commit) -> None:
    """Raise these tasks, and all tasks that they wait for, to at least the given urgency."""
    if connection.execute(SQL["lend_urgency"], (encoded(list(urgencies)),)).fetchall():
        commit.reordered = True


def reckon(connection: Connection, ids: Sequence[int], commit: Commit) -> None:
    """Compute the urgency of these tasks again and, where it changed, of the tasks they wait for."""
    while ids:
        misjudged = decode_pairs(one(connection, SQL["misjudged"], encoded(ids)))
        if not misjudged:
            return
        commit.reordered = True
        connection.execute(SQL["set_urgency"], (encoded(misjudged),))
        ids = decode_ids(one(connection, SQL["waited_for"], encoded([id for id, _ in misjudged])))


def set_priority(connection: Connection, id: int, priority: int) -> Commit | None:
    """Change the priority of an active task, and the urgency that it lends; return None if there is no such task."""
    commit = Commit()
    if not connection.execute(SQL["set_priority"], (id, priority)).rowcount:
        return None
    reckon(connection, [id], commit)
    commit.reordered = True
    return commit
