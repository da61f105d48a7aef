"""Read recurring series."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from taskmill.model.durations import from_ms
from taskmill.model.snapshot import Schedule
from taskmill.store.sql.connection import Connection, one
from taskmill.store.sql.statements import SQL

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
