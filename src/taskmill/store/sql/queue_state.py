"""Reading the state of the whole queue, for simulations."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from taskmill.model.queue_state import EndedRun, PastTask, QueuedSeries, QueuedTask, WholeQueue
from taskmill.store.sql import controls, machine
from taskmill.store.sql.connection import Connection, decode_pairs, encoded, one
from taskmill.store.sql.statements import SQL

RUNS_OF_TYPE = 200
"""The number of past runs of each task type that are read."""
MOST_REPLAYED = 100_000

_decode_tasks = msgspec.json.Decoder(list[QueuedTask], strict=False).decode
_decode_series = msgspec.json.Decoder(list[QueuedSeries], strict=False).decode
_decode_runs = msgspec.json.Decoder(list[tuple[str, list[EndedRun]]]).decode
_decode_past = msgspec.json.Decoder(list[PastTask]).decode


def read(connection: Connection, types: Collection[str], now: int) -> WholeQueue:
    """Read the queue as of one moment, and the last runs of the types in it and of ``types``."""
    with connection.snapshot():
        tasks = _decode_tasks(one(connection, SQL["queue_state"]))
        state = _with_runs(connection, {*types, *(task.type for task in tasks)}, now)
        state.tasks = tasks
        state.waits_for = decode_pairs(one(connection, SQL["open_dependencies"]))
        state.series = _decode_series(one(connection, SQL["all_series"]))
        return state


def read_runs(connection: Connection, types: Collection[str], now: int) -> WholeQueue:
    """Read the last runs of these types, and the controls."""
    with connection.snapshot():
        return _with_runs(connection, types, now)


def _with_runs(connection: Connection, types: Collection[str], now: int) -> WholeQueue:
    wanted = encoded([[type] for type in sorted(types)])
    return WholeQueue(
        now=now,
        tasks=(),
        controls=controls.read(connection),
        recent=dict(_decode_runs(one(connection, SQL["recent_runs"], wanted, RUNS_OF_TYPE))),
        moved=machine.moved(connection),
    )


def past(connection: Connection, since: int) -> list[PastTask]:
    """Read the tasks that were submitted since then and have run and ended, oldest first."""
    found = _decode_past(one(connection, SQL["past_tasks"], since, MOST_REPLAYED))
    return sorted(found, key=lambda task: task.id)
