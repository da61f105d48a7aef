"""Moving tasks to history, and everything that follows from it.

Every ending passes through :func:`end_tasks`, so that history, tags and tally can never disagree, and so that whoever
waits for a task, its successor, its dependents, its parent, its series, is served in the same transaction. What ends in
consequence is handled the same way, round by round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from taskmill.model.effects import Effects, Ended
from taskmill.model.stages import Described
from taskmill.model.status import Ending
from taskmill.model.verdict import End
from taskmill.store.sql import cron, dependencies, families, series
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.describing import describe
from taskmill.store.sql.json_sql import decode_pairs, encoded, one
from taskmill.store.sql.releasing import release
from taskmill.store.sql.rows import EndingRow
from taskmill.store.sql.statements import SQL


class Ties(NamedTuple):
    """Whom the endings of some tasks may concern."""

    successors: bool = True
    dependents: bool = True
    parents: bool = True
    series: bool = True
    cron: bool = True


ANYONE = Ties()
"""Whoever there is: it is looked up."""
CRON_ONLY = Ties(successors=False, dependents=False, parents=False, series=False)
NOBODY = CRON_ONLY._replace(cron=False)
_decode_ties = msgspec.json.Decoder(Ties, strict=False).decode


def end_tasks(
    connection: Connection,
    endings: Sequence[EndingRow],
    now: int,
    effects: Effects,
    *,
    sums: str | None = None,
    tagged: bool = True,
    told: bool = False,
    ties: Ties = ANYONE,
    tasks: Sequence[Described] | None = None,
) -> None:
    """Move active tasks to history and serve all who waited for them.

    A caller that knows the tasks saves some reading: ``sums`` for the tally, whether any is ``tagged``, whom they are
    tied to, what events tell about them. ``told`` says that the caller itself announces the tasks it names.
    """
    contained: set[int] = set()
    endings = _once(endings)
    while endings:
        if not told:
            if tasks is None:
                tasks = describe(connection, [row.id for row in endings])
            _tell(tasks, endings, effects)
            if all(task.type for task in tasks):
                sums, tagged = _sums(tasks, endings), any(task.tags for task in tasks)
        ids = encoded([row.id for row in endings])
        if ties is ANYONE:
            ties = _decode_ties(one(connection, SQL["ties"]))
        # Whoever has run has passed its gate.
        has_gates = ties.successors and not told
        gates = dict(decode_pairs(one(connection, SQL["gates"], ids))) if has_gates else {}
        _record(connection, endings)
        leave_active(connection, ids, sums or one(connection, SQL["sums_of_endings"], ids), tagged=tagged)
        if gates:
            connection.execute(SQL["take_keys_back"], (encoded(list(gates.values())),))
        ended = {row.id: row.ending for row in endings}
        following: list[EndingRow] = []
        if ties.successors:
            _open_gates(connection, ids, now, effects)
        if ties.dependents:
            following += dependencies.follow(connection, ended, contained, gates, now, effects)
        if ties.parents:
            following += families.follow(connection, ended, now, effects)
        if ties.series:
            series.follow(connection, ended, now, effects)
        if ties.cron:
            cron.follow(connection, endings, now, effects)
        endings = _once(following)
        sums, tagged, told, ties, tasks = None, True, False, ANYONE, None


def _record(connection: Connection, endings: Sequence[EndingRow]) -> None:
    """Write history. Many tasks that end for one reason, with nothing else to say, are written with less ado."""
    first = endings[0]
    said = first[1:]
    if first[3:] == (None, None, None) and all(row[1:] == said for row in endings):
        ids = encoded([(row.id,) for row in endings])
        connection.execute(SQL["record_endings"], (ids, first.ending, first.ended_at))
    else:
        connection.execute(SQL["record_endings"], (encoded(endings), None, None))


def _once(endings: Sequence[EndingRow]) -> Sequence[EndingRow]:
    """One task may end for two reasons at once; the first counts."""
    first: dict[int, EndingRow] = {}
    for row in endings:
        first.setdefault(row.id, row)
    return endings if len(first) == len(endings) else list(first.values())


def leave_active(connection: Connection, ids: str, sums: str, *, tagged: bool) -> None:
    """What is in history now leaves the active table, and is counted."""
    connection.execute(SQL["delete_active"], (ids,))
    connection.execute(SQL["tally"], (sums,))
    if tagged and connection.execute(SQL["move_tags"], (ids,)).rowcount:
        connection.execute(SQL["delete_active_tags"], (ids,))


def _tell(tasks: Sequence[Described], endings: Sequence[EndingRow], effects: Effects) -> None:
    rows = {row.id: row for row in endings}
    for task in tasks:
        row = rows[task.id]
        effects.ended.append(Ended(task, End(row.ending, row.result, row.error), row.duration_ms))


def _sums(tasks: Sequence[Described], endings: Sequence[EndingRow]) -> str:
    """What these endings add to the tally; a task whose row is damaged does not tell what it is."""
    rows = {row.id: row for row in endings}
    sums: dict[tuple[str, str, Ending], list[int]] = {}
    for task in tasks:
        row = rows[task.id]
        total = sums.setdefault((task.type, task.group, row.ending), [0, 0])
        total[0] += 1
        total[1] += row.duration_ms or 0
    return encoded([(*key, *total) for key, total in sums.items()])


def _open_gates(connection: Connection, ids: str, now: int, effects: Effects) -> None:
    """Let the replacements of these tasks go."""
    gated = decode_pairs(one(connection, SQL["gated"], ids))
    if gated:
        connection.execute(SQL["open_gates"], (ids,))
        effects.successors.update(gated)
        release(connection, [id for _, id in gated], now, effects)
