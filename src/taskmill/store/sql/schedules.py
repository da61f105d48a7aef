"""Read recurring series and cron tasks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from taskmill.model.cron import CronState
from taskmill.model.durations import from_ms
from taskmill.model.snapshot import Schedule
from taskmill.store.sql.connection import Connection, encoded, one
from taskmill.store.sql.statements import SQL

if TYPE_CHECKING:
    from taskmill.core.cron_port import CronRow

_decode_schedules = msgspec.json.Decoder(
    list[tuple[str, str | None, int, int, int, int, int | None, bool]], strict=False
).decode


def schedules(connection: Connection) -> list[Schedule]:
    return [
        Schedule(
            type=type,
            key=key,
            every=timedelta(milliseconds=every_ms),
            next_run=from_ms(due_at),
            task_id=task_id,
            runs=runs,
            max_runs=max_runs,
            paused=paused,
        )
        for type, key, every_ms, due_at, task_id, runs, max_runs, paused in _decode_schedules(
            one(connection, SQL["schedules"])
        )
    ]


class _StoredRow(msgspec.Struct, array_like=True):
    state: CronState
    type: str
    task_id: int | None
    runs: int


_decode_rows = msgspec.json.Decoder(list[_StoredRow]).decode


def cron_rows(connection: Connection, names: Sequence[str] | None = None) -> list[CronRow]:
    """Return the named cron tasks, or all, in the order of declaration."""
    if names is None:
        return read_cron(connection, "all_cron")
    return read_cron(connection, "cron_named", encoded(names))


def read_cron(connection: Connection, statement: str, *parameters: str) -> list[CronRow]:
    """Return the cron tasks that a statement finds."""
    found = _decode_rows(one(connection, SQL[statement], *parameters))
    if not found:
        return []
    # Imported here, because most stores have no cron tasks.
    from taskmill.core.cron_port import CronRow

    return [CronRow(row.state, row.type, row.task_id, row.runs) for row in found]
