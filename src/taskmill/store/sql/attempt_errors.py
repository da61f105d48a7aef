"""The errors of attempts: writing them with the verdict, and grouping them (docs/decisions/0036).

A task that succeeds at once costs no statement here. The transaction that commits the verdict on a failed attempt
writes its error, so neither exists without the other.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import msgspec

from taskmill.model.attempt import TryAgain
from taskmill.model.durations import from_ms
from taskmill.model.records import ErrorGroup
from taskmill.model.turn import Judged
from taskmill.policy.verdicts import Orphan
from taskmill.store.sql.connection import Connection, encoded, one
from taskmill.store.sql.statements import SQL

MOST_KEPT = 20
"""How many errors of a task are kept, as the statement ``trim_errors`` has it."""
MOST_SAMPLES = 5
PROCESS_DIED = "the process that ran it died"


class _GroupRow(msgspec.Struct, array_like=True):
    type: str
    exception: str
    location: str
    count: int
    first_at: int
    last_at: int
    task_ids: list[int]
    dead_letters: int


_decode_groups = msgspec.json.Decoder(list[_GroupRow]).decode


def note(
    connection: Connection, judged: Sequence[Judged], lost: Container[tuple[int, int]], now: int, node: str | None
) -> None:
    """Write the errors of those attempts that failed; an attempt that has ``lost`` its token leaves none."""
    failed = [each for each in judged if each.failure is not None and (each.task.id, each.task.attempt) not in lost]
    if failed:
        rows = [_row(each, now) for each in failed]
        connection.execute(SQL["note_errors"], (encoded(rows), now, node))
        _trim(connection, [each.task.id for each in failed if each.task.attempt > MOST_KEPT])


def note_crashes(connection: Connection, orphans: Sequence[Orphan], now: int, nodes: Mapping[int | None, str]) -> None:
    """Write that the processes of these running tasks died; ``nodes`` has the names of the dead nodes."""
    if orphans:
        rows = [(orphan.id, nodes.get(orphan.node)) for orphan in orphans]
        connection.execute(SQL["note_crashes"], (encoded(rows), now, PROCESS_DIED))
        _trim(connection, [orphan.id for orphan in orphans])


def _trim(connection: Connection, ids: Sequence[int]) -> None:
    if ids:
        connection.execute(SQL["trim_errors"], (encoded(ids),))


def _row(judged: Judged, now: int) -> tuple[object, ...]:
    task, failure, verdict = judged.task, judged.failure, judged.verdict
    assert failure is not None  # noqa: S101 - the caller has checked this
    details, retry_ms = failure.details, None
    if isinstance(verdict, TryAgain):
        retry_ms = 0 if verdict.due_at is None else max(0, verdict.due_at - now)
    return (
        task.id,
        task.attempt,
        failure.kind,
        task.type,
        failure.kind if details is None else details.exception,
        "" if details is None else details.location or "",
        failure.error,
        None if details is None else details.traceback,
        judged.duration_ms,
        retry_ms,
    )


def groups(connection: Connection, since: int) -> list[ErrorGroup]:
    """Return the groups of errors since an instant, the one with the last error first."""
    found = _decode_groups(one(connection, SQL["error_groups"], since))
    found.sort(key=lambda row: (-row.last_at, row.type, row.exception, row.location))
    return [
        ErrorGroup(
            type=row.type,
            exception=row.exception,
            location=row.location or None,
            count=row.count,
            first_at=from_ms(row.first_at),
            last_at=from_ms(row.last_at),
            sample_ids=tuple(dict.fromkeys(row.task_ids))[:MOST_SAMPLES],
            dead_letters=row.dead_letters,
        )
        for row in found
    ]
