"""Recovery of the tasks of a dead dispatcher, inside the writer's transaction."""

from __future__ import annotations

import msgspec

from taskmill.model.commit import Recovery
from taskmill.model.outcome import StopReason
from taskmill.model.status import Ending, Status
from taskmill.policy.verdicts import crash_message, quarantined
from taskmill.store.sql import cron, families, series
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.endings import end_tasks
from taskmill.store.sql.json_sql import encoded, one
from taskmill.store.sql.ledger import ReturnRow
from taskmill.store.sql.rows import EndingRow
from taskmill.store.sql.statements import SQL


class _Orphan(msgspec.Struct, array_like=True):
    """A task whose dispatcher died."""

    id: int
    retries: int
    crashes: int
    stop: StopReason | None
    finalizing: bool
    has_children: bool
    had_children: bool
    had_stopped: bool
    """True if its dispatcher had stopped gracefully, but the handler did not stop in time."""


_decode_orphans = msgspec.json.Decoder(list[_Orphan], strict=False).decode


def recover(connection: Connection, now: int) -> Recovery:
    """Return the tasks of a dead dispatcher to the queue, except those that keep killing their process."""
    recovery = Recovery()
    series.notice_put_back(connection, now)
    returns: list[ReturnRow] = []
    endings: list[EndingRow] = []
    for orphan in _decode_orphans(one(connection, SQL["orphans"])):
        id, stop, crashes = orphan.id, orphan.stop, orphan.crashes + (not orphan.had_stopped)
        if orphan.had_stopped or not quarantined(crashes, stopping=stop is not None):
            waits = orphan.has_children and (stop is not None or orphan.finalizing)
            status = Status.WAITING if waits or stop == StopReason.FAIL else Status.PENDING
            returns.append((id, status, orphan.retries, crashes, None, None, True, 0))
        elif stop is not None:
            endings.append(EndingRow(id, families.ENDING_OF_STOP[stop], now, None, None, crash_message(crashes)))
        elif orphan.had_children:
            families.attempt_over(connection, id)
            outcome = (Ending.DEAD_LETTER, None, crash_message(crashes), None)
            endings += families.fail(connection, id, outcome, now, recovery.commit)
        else:
            endings.append(EndingRow(id, Ending.DEAD_LETTER, now, None, None, crash_message(crashes)))
    if returns:
        connection.execute(SQL["return_to_queue"], (encoded(returns), now))
        cron.interrupted(connection, [row[0] for row in returns], now, recovery.commit)
        recovery.returned = len(returns)
    end_tasks(connection, endings, now, recovery.commit)
    end_tasks(connection, families.wake_childless(connection, now, recovery.commit), now, recovery.commit)
    return recovery
