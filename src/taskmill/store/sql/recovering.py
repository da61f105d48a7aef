"""Recovery of the tasks of a dead dispatcher, inside the writer's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from taskmill.model.attempt import Again, End, StopChildren
from taskmill.model.commit import Recovery
from taskmill.policy.verdicts import Orphan, after_death
from taskmill.store.sql import attempt_errors, cron, families, series
from taskmill.store.sql.connection import Connection, encoded, one
from taskmill.store.sql.endings import end_tasks
from taskmill.store.sql.ledger import return_to_queue
from taskmill.store.sql.rows import EndingRow
from taskmill.store.sql.statements import SQL

_decode_orphans = msgspec.json.Decoder(list[Orphan], strict=False).decode


def recover(
    connection: Connection,
    now: int,
    nodes: Mapping[int | None, str],
    begun: Sequence[tuple[int, int, int]] = (),
) -> Recovery:
    """Return the tasks of a dead dispatcher to the queue, except those that keep crashing their process.

    ``nodes`` has the names of dead nodes, as far as they are known. ``begun`` has ``(id, attempt, began at)`` of
    prefetched tasks that are known to have begun: they were running.
    """
    recovery = Recovery()
    if begun:
        connection.execute(SQL["note_begun"], (encoded(begun),))
    series.notice_put_back(connection, now)
    returns: list[tuple[int, Again]] = []
    endings: list[EndingRow] = []
    orphans = _decode_orphans(one(connection, SQL["orphans"]))
    attempt_errors.note_crashes(connection, [orphan for orphan in orphans if orphan.has_crashed], now, nodes)
    for orphan in orphans:
        match after_death(orphan):
            case Again() as again:
                returns.append((orphan.id, again))
            case End(ending, result, error):
                endings.append(EndingRow(orphan.id, ending, now, None, result, error))
            case StopChildren(End(ending, result, error)):
                outcome = (ending, result, error, None)
                endings += families.end_with_children(connection, orphan.id, outcome, now, recovery.commit)
    if returns:
        return_to_queue(connection, returns, now)
        cron.interrupted(connection, [id for id, _ in returns], now, recovery.commit)
        recovery.returned = len(returns)
    end_tasks(connection, endings, now, recovery.commit)
    end_tasks(connection, families.wake_childless(connection, now, recovery.commit), now, recovery.commit)
    return recovery
