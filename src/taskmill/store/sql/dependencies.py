"""Dependencies in the store: edges, what endings mean for those who wait, and the urgency that waiting tasks lend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from taskmill.model.effects import Effects
from taskmill.model.status import Ending, OnDependencyFailure
from taskmill.policy.dependencies import answer_ending
from taskmill.policy.references import DependencyState
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.describing import describe
from taskmill.store.sql.json_sql import decode_ids, decode_pairs, encoded, one
from taskmill.store.sql.releasing import release
from taskmill.store.sql.rows import EndingRow
from taskmill.store.sql.statements import SQL

_decode_states = msgspec.json.Decoder(list[tuple[int, bool, Ending | None]], strict=False).decode
_decode_dependents = msgspec.json.Decoder(list[tuple[int, int, OnDependencyFailure, bool]], strict=False).decode


def states(connection: Connection, ids: Iterable[int]) -> dict[int, DependencyState]:
    """What is known of the tasks that new ones want to depend on; those that nobody knows are missing."""
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
    """Whether any of ``ids`` is among ``others``, or waits, directly or through others, for one of them."""
    return bool(one(connection, SQL["reaches"], encoded(sorted(ids)), encoded(sorted(others))))


def waits_below(connection: Connection, ids: Iterable[int]) -> list[tuple[int, int]]:
    """Who waits for whom, from these tasks on."""
    return decode_pairs(one(connection, SQL["waits_below"], encoded(sorted(ids))))


def link(
    connection: Connection, edges: Sequence[tuple[int, int, bool]], urgencies: Mapping[int, int], effects: Effects
) -> None:
    """Store edges ``(task, on, open)``; a more urgent task lends its urgency to what it waits for."""
    connection.execute(SQL["insert_edges"], (encoded(edges),))
    awaited = sorted({on_id for _, on_id, is_open in edges if is_open})
    if awaited:
        connection.execute(SQL["mark_awaited"], (encoded(awaited),))
        lent: dict[int, int] = {}
        for task, on_id, is_open in edges:
            if is_open:
                lent[on_id] = min(urgencies[task], lent.get(on_id, urgencies[task]))
        lend(connection, lent.items(), effects)


def point_at_successors(connection: Connection, pairs: Sequence[tuple[int, int]], effects: Effects) -> None:
    """Who waits for a task that is replaced waits for its replacement, the last one of a chain."""
    successor = dict(pairs)
    final: list[tuple[int, int]] = []
    for old, new in pairs:
        last = new
        while last in successor:
            last = successor[last]
        final.append((old, last))
    moved = connection.execute(SQL["point_at_successors"], (encoded(final),)).rowcount
    # Who waits for both keeps one edge.
    moved += connection.execute(SQL["forget_edges_onto"], (encoded(list(successor)),)).rowcount
    if moved:
        successors = [new for _, new in final]
        connection.execute(SQL["mark_awaited"], (encoded(successors),))
        reckon(connection, successors, effects)


def follow(
    connection: Connection,
    ended: Mapping[int, Ending],
    contained: set[int],
    gates: Mapping[int, int],
    now: int,
    effects: Effects,
) -> list[EndingRow]:
    """Tasks have ended: release those that waited for them, or end these in turn.

    ``contained`` holds tasks whose failure stops with them; those that fail alone are added to it. ``gates`` tells of
    replacements that have ended before the attempt which they replace: who waited for one waits for that attempt.
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
            _hand_on(connection, handed_on, effects)
        waited = sorted({task_id for task_id, _ in met})
        # Something else may hold one back still: siblings, or the attempt that it replaces.
        if unblocked := decode_ids(one(connection, SQL["without_open_edges"], encoded(waited))):
            effects.unblocked += describe(connection, unblocked)
            release(connection, unblocked, now, effects)
    if any(ending is not Ending.COMPLETED for ending in ended.values()):
        _withdraw(connection, given, effects)
    return rows


def _hand_on(connection: Connection, edges: Sequence[tuple[int, int, bool]], effects: Effects) -> None:
    """Tasks that waited already wait for others from now on."""
    connection.execute(SQL["insert_edges"], (encoded(edges),))
    awaited = sorted({on_id for _, on_id, _ in edges})
    connection.execute(SQL["mark_awaited"], (encoded(awaited),))
    reckon(connection, awaited, effects)


def drop(connection: Connection, ids: Sequence[int], effects: Effects) -> None:
    """Forget what these tasks wait for."""
    given = encoded(list(ids))
    _withdraw(connection, given, effects)
    connection.execute(SQL["forget_edges"], (given,))


def _withdraw(connection: Connection, ended: str, effects: Effects) -> None:
    """Tasks that ended before their dependencies did no longer lend them urgency."""
    edges = decode_pairs(one(connection, SQL["open_edges_of"], ended))
    if edges:
        connection.execute(SQL["close_edges"], (encoded(edges),))
        reckon(connection, sorted({on_id for _, on_id in edges}), effects)


def lend(connection: Connection, urgencies: Iterable[tuple[int, int]], effects: Effects) -> None:
    """Make these tasks, and whatever they wait for, at least that urgent."""
    if connection.execute(SQL["lend_urgency"], (encoded(list(urgencies)),)).fetchall():
        effects.reordered = True


def reckon(connection: Connection, ids: Sequence[int], effects: Effects) -> None:
    """Work out the urgency of these tasks anew, and of what they wait for if it changed."""
    while ids:
        misjudged = decode_pairs(one(connection, SQL["misjudged"], encoded(ids)))
        if not misjudged:
            return
        effects.reordered = True
        connection.execute(SQL["set_urgency"], (encoded(misjudged),))
        ids = decode_ids(one(connection, SQL["waited_for"], encoded([id for id, _ in misjudged])))


def forget(connection: Connection, ids: str) -> None:
    """Tasks are pruned from history, and what they depended on with them."""
    connection.execute(SQL["forget_edges"], (ids,))
