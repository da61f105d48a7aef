"""Moving tasks to history, with all consequences.

Every ending passes through :func:`end_tasks`, so that history, tags and tally always agree, and no wake-up is lost: the
transaction that ends a task also releases its replacement and its dependents, updates its parent, and creates the next
occurrence of its series. Tasks that end as a consequence are handled the same way, in rounds.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from taskmill.model.attempt import End
from taskmill.model.commit import Commit, Ended
from taskmill.model.status import Ending
from taskmill.model.task import Described
from taskmill.model.turn import Judged
from taskmill.store.sql import cron, dependencies, families, load, series
from taskmill.store.sql.connection import Connection, Statement, decode_pairs, encoded, one
from taskmill.store.sql.releasing import release
from taskmill.store.sql.rows import EndingRow, describe
from taskmill.store.sql.statements import SQL


class LinkKinds(NamedTuple):
    """The kinds of links that tasks may have to others, and that their endings therefore affect."""

    successors: bool = True
    dependents: bool = True
    parents: bool = True
    series: bool = True
    cron: bool = True


ALL_LINK_KINDS = LinkKinds()
"""The links are unknown and have to be looked up."""
CRON_ONLY = LinkKinds(successors=False, dependents=False, parents=False, series=False)
NO_LINK_KINDS = CRON_ONLY._replace(cron=False)
_decode_ties = msgspec.json.Decoder(LinkKinds, strict=False).decode


def end_tasks(
    connection: Connection,
    endings: Sequence[EndingRow],
    now: int,
    commit: Commit,
    *,
    sums: str | None = None,
    tagged: bool = True,
    told: bool = False,
    ties: LinkKinds = ALL_LINK_KINDS,
    tasks: Sequence[Described] | None = None,
) -> None:
    """Move active tasks to history, and handle every task that waits for them.

    A caller that knows the tasks can save reads: ``sums`` are the rows for the tally, ``tagged`` is True if any task
    has tags, ``ties`` are the links of the tasks, and ``tasks`` their descriptions for events. ``told`` is True if the
    caller announces these endings itself; then the tasks were running.
    """
    contained: set[int] = set()
    endings = _once(endings)
    while endings:
        if not told:
            if tasks is None:
                tasks = describe(connection, [row.id for row in endings])
            _tell(tasks, endings, commit)
            if all(task.type for task in tasks):
                sums, tagged = _sums(tasks, endings), any(task.tags for task in tasks)
        ids = encoded([row.id for row in endings])
        if ties is ALL_LINK_KINDS:
            ties = _decode_ties(one(connection, SQL["ties"]))
        # Endings that the caller announces are of tasks that have run, and so have no gate any longer.
        has_gates = ties.successors and not told
        gates = dict(decode_pairs(one(connection, SQL["gates"], ids))) if has_gates else {}
        if not told:
            load.count_ended(connection, ids)
        _record(connection, endings)
        leave_active(connection, ids, sums or one(connection, SQL["sums_of_endings"], ids), tagged=tagged)
        if gates:
            connection.execute(SQL["take_keys_back"], (encoded(list(gates.values())),))
        ended = {row.id: row.ending for row in endings}
        following: list[EndingRow] = []
        if ties.successors:
            _open_gates(connection, ids, now, commit)
        if ties.dependents:
            following += dependencies.follow(connection, ended, contained, gates, now, commit)
        if ties.parents:
            following += families.follow(connection, ended, now, commit)
        if ties.series:
            series.follow(connection, ended, now, commit)
        if ties.cron:
            cron.follow(connection, endings, now, commit)
        endings = _once(following)
        sums, tagged, told, ties, tasks = None, True, False, ALL_LINK_KINDS, None


def _record(connection: Connection, endings: Sequence[EndingRow]) -> None:
    """Write history. If all tasks have the same ending and no result or error, pass the ending only once."""
    first = endings[0]
    said = first[1:]
    if first[3:] == (None, None, None) and all(row[1:] == said for row in endings):
        ids = encoded([(row.id,) for row in endings])
        connection.execute(SQL["record_endings"], (ids, first.ending, first.ended_at, None))
    else:
        connection.execute(SQL["record_endings"], (encoded(endings), None, None, None))


def _once(endings: Sequence[EndingRow]) -> Sequence[EndingRow]:
    """Keep the first ending of each task: one task may end for two reasons at once."""
    first: dict[int, EndingRow] = {}
    for row in endings:
        first.setdefault(row.id, row)
    return endings if len(first) == len(endings) else list(first.values())


def leave_active(connection: Connection, ids: str, sums: str, *, tagged: bool) -> None:
    """Delete tasks that are in history from the active table, and add them to the tally.

    The caller has already subtracted those that were not running from the numbers of active tasks.
    """
    for statement in leaving(ids, sums, tagged=tagged):
        connection.execute(statement.name, statement.parameters)


def leaving(ids: str, sums: str, *, tagged: bool) -> list[Statement]:
    """Return the statements of :func:`leave_active`."""
    statements = [Statement(SQL["delete_active"], (ids,)), Statement(SQL["tally"], (sums,))]
    if tagged:
        statements += [Statement(SQL["move_tags"], (ids,)), Statement(SQL["delete_active_tags"], (ids,))]
    return statements


def _tell(tasks: Sequence[Described], endings: Sequence[EndingRow], commit: Commit) -> None:
    rows = {row.id: row for row in endings}
    for task in tasks:
        row = rows[task.id]
        commit.ended.append(Ended(task, End(row.ending, row.result, row.error), row.duration_ms))


def _sums(tasks: Sequence[Described], endings: Sequence[EndingRow]) -> str:
    """Return the rows that these endings add to the tally; the descriptions must be complete."""
    rows = {row.id: row for row in endings}
    sums: dict[tuple[str, str, Ending], list[int]] = {}
    for task in tasks:
        row = rows[task.id]
        total = sums.setdefault((task.type, task.group, row.ending), [0, 0])
        total[0] += 1
        total[1] += row.duration_ms or 0
    return encoded([(*key, *total) for key, total in sums.items()])


def _open_gates(connection: Connection, ids: str, now: int, commit: Commit) -> None:
    """Release the replacements and added runs that waited for these tasks."""
    gated = decode_pairs(one(connection, SQL["gated"], ids))
    if gated:
        connection.execute(SQL["open_gates"], (ids,))
        commit.successors.update(gated)
        release(connection, [id for _, id in gated], now, commit)


def just_ends(judged: Judged) -> bool:
    """True if the attempt is over, the task ends with it, and no other task waits for that."""
    return isinstance(judged.verdict, End) and not judged.stopped and not judged.task.is_tied
