"""Recurring series in the store: one occurrence is always active, and its end creates the next.

A *beat* is a due time of a series, one every ``every_ms``. A beat that comes while the last occurrence is still active
is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from taskmill.model.attempt import StopReason
from taskmill.model.commit import Commit, SeriesChange, Skipped
from taskmill.model.status import Status
from taskmill.model.task import Links, NewTask
from taskmill.policy.series import beats_passed, is_spent, next_occurrence, put_back_by
from taskmill.store.sql import cluster, paused_time
from taskmill.store.sql.connection import Connection, decode_pairs, encoded, one
from taskmill.store.sql.families import stop_trees
from taskmill.store.sql.releasing import release
from taskmill.store.sql.rows import EndingRow, describe, insert_rows, key_holder, key_stopper
from taskmill.store.sql.statements import SQL


class Series(msgspec.Struct, array_like=True):
    """A stored series."""

    template: str
    every_ms: int
    first_at: int
    due_at: int
    """The latest beat that has an occurrence or was skipped."""
    ttl_ms: int | None
    runs: int
    max_runs: int | None
    paused: bool


_decode_series = msgspec.json.Decoder(Series, strict=False).decode
_decode_template = msgspec.json.Decoder(NewTask).decode
_decode_occurrence = msgspec.json.Decoder(tuple[int, Status, int]).decode
_decode_ended = msgspec.json.Decoder(list[tuple[int, bool]], strict=False).decode
_decode_passed = msgspec.json.Decoder(list[tuple[int, int, int, int]]).decode


def begin(connection: Connection, id: int, task: NewTask, links: Links, commit: Commit) -> None:
    """Make the stored task ``id`` the first occurrence of a new series."""
    template = msgspec.structs.replace(task, links=None, gate_id=None, stop=None, place_id=None)
    first_at = task.created_at if task.due_at is None else task.due_at
    ttl_ms = None if task.expires_at is None else task.expires_at - max(first_at, task.created_at)
    parameters = (encoded(template), links.every_ms, first_at, ttl_ms, links.max_runs, task.created_at, id)
    series_id = one(connection, SQL["begin"], *parameters)
    connection.execute(SQL["join_series"], (id, series_id))
    commit.beats.append(first_at + (links.every_ms or 0))


def forget(connection: Connection, series_id: int) -> None:
    """Delete a series."""
    connection.execute(SQL["forget"], (series_id,))


def follow(connection: Connection, ended: Iterable[int], now: int, commit: Commit) -> None:
    """Create the next occurrence of each series whose last occurrence has ended."""
    for series_id, came in _decode_ended(one(connection, SQL["of_ended"], encoded(list(ended)))):
        series = _read(connection, series_id)
        if series is not None and not _has_active(connection, series_id):
            if came:
                # The occurrence has started, so its beat had come. If that is in the future now, the wall clock was set
                # back in the meantime.
                back = _put_back_by(connection, series.due_at, now)
                series.first_at, series.due_at = series.first_at - back, series.due_at - back
            _advance(connection, series_id, series, now, commit)


def skip_passed(connection: Connection, now: int, limit: int, commit: Commit) -> None:
    """Skip the beats that have come while the last occurrence is active.

    Each beat is skipped once, even if several nodes do this at the same time: the row stores the latest one.
    """
    for series_id, every_ms, due_at, active in _decode_passed(one(connection, SQL["beats_passed"], now, limit)):
        latest, skipped = beats_passed(every_ms, due_at, now)
        if connection.execute(SQL["settle_beats"], (series_id, due_at, latest, now)).rowcount:
            (described,) = describe(connection, [active])
            commit.skipped.append(Skipped(described, skipped))


def clock_stepped(connection: Connection, by_ms: int) -> None:
    """Move the beats of all series after a step of the wall clock; waiting occurrences are moved as delays are."""
    connection.execute(SQL["shift_series"], (by_ms,))


def notice_put_back(connection: Connection, now: int) -> None:
    """Move series whose times are in the future because the wall clock was set back while no scheduler ran."""
    for series_id, made_at in decode_pairs(one(connection, SQL["series_ahead"], now)):
        if back := _put_back_by(connection, made_at, now):
            connection.execute(SQL["move_series"], (series_id, -back))
            connection.execute(SQL["move_occurrences"], (series_id, -back))


def _put_back_by(connection: Connection, happened_at: int, now: int) -> int:
    """Return by how many milliseconds, at least, the wall clock was set back since ``happened_at``."""
    back = put_back_by(happened_at, now)
    if back and cluster.others(connection):
        # Perhaps only the clock of this node was set back: the clock of the database decides.
        return put_back_by(happened_at, max(now, one(connection, SQL["server_clock"])))
    return back


def _read(connection: Connection, series_id: int) -> Series | None:
    row = connection.execute(SQL["series"], (series_id,)).fetchone()
    return None if row is None else _decode_series(row[0])


def _has_active(connection: Connection, series_id: int) -> bool:
    """True if any occurrence has not ended, including one that is being stopped."""
    return bool(one(connection, SQL["has_active"], series_id))


def _advance(connection: Connection, series_id: int, series: Series, now: int, commit: Commit) -> None:
    if is_spent(series.runs, series.max_runs):
        forget(connection, series_id)
        return
    template = _decode_template(series.template)
    holder = key_holder(connection, template.type, template.key)
    if holder is not None:
        # Another task took the key while the occurrence was being stopped. That task becomes the next occurrence,
        # unless it belongs to a series already; then that series replaces this one.
        if not connection.execute(SQL["join_series"], (holder, series_id)).rowcount:
            forget(connection, series_id)
        return
    due_at, skipped = next_occurrence(series.first_at, series.every_ms, series.due_at, now)
    task = msgspec.structs.replace(
        template,
        status=Status.BLOCKED,
        gate_id=key_stopper(connection, template.type, template.key),
        created_at=now,
        queued_at=due_at,
        due_at=due_at,
        due_is_relative=True,
        expires_at=None if series.ttl_ms is None else due_at + series.ttl_ms,
        links=Links(series_id=series_id),
    )
    id = insert_rows(connection, [task])
    if series.paused:
        connection.execute(SQL["pause_occurrence"], (id, now))
    connection.execute(SQL["advance"], (series_id, series.first_at, due_at, 1, now))
    if not series.paused:
        commit.beats.append(due_at + series.every_ms)
    (described,) = describe(connection, [id])
    commit.occurrences.append(described)
    release(connection, [id], now, commit)
    if skipped:
        commit.skipped.append(Skipped(described, skipped))


def occurrence_of(connection: Connection, id: int) -> list[int]:
    """Return the active occurrence of the series that a task belongs to, if there is one."""
    series_id, _ = _of_task(connection, id)
    row = None if series_id is None else connection.execute(SQL["occurrence"], (series_id,)).fetchone()
    return [] if row is None else [_decode_occurrence(row[0])[0]]


def pause(connection: Connection, id: int, now: int, commit: Commit) -> SeriesChange:
    series_id, series = _of_task(connection, id)
    if series_id is None or series is None:
        return SeriesChange(commit=commit)
    commit.pauses_ended += paused_time.end_pauses(connection, now)
    change = SeriesChange(series_id, commit=commit)
    connection.execute(SQL["set_paused"], (series_id, 1))
    if row := connection.execute(SQL["occurrence"], (series_id,)).fetchone():
        occurrence, _, _ = _decode_occurrence(row[0])
        if paused_time.is_owed(connection):
            paused_time.settle(connection, [occurrence])
        if connection.execute(SQL["pause_occurrence"], (occurrence, now)).rowcount:
            (change.occurrence,) = describe(connection, [occurrence])
            change.commit.reordered = True
    return change


def resume(connection: Connection, id: int, now: int, commit: Commit) -> SeriesChange:
    """Resume a series with the first beat that has not passed; beats that passed during the pause are skipped."""
    series_id, series = _of_task(connection, id)
    if series_id is None or series is None:
        return SeriesChange(commit=commit)
    commit.pauses_ended += paused_time.end_pauses(connection, now)
    change = SeriesChange(series_id, commit=commit)
    connection.execute(SQL["set_paused"], (series_id, 0))
    change.commit.beats.append(now)
    row = connection.execute(SQL["occurrence"], (series_id,)).fetchone()
    if row is None:
        return change
    occurrence, status, attempt = _decode_occurrence(row[0])
    if status is not Status.PAUSED:
        return change
    if attempt:
        connection.execute(SQL["resume_retry"], (occurrence, now))
    else:
        _move(connection, series_id, series, occurrence, now, change.commit)
    # Something else may still block it, such as the attempt that it replaces.
    release(connection, [occurrence], now, change.commit)
    (change.occurrence,) = describe(connection, [occurrence])
    return change


def _move(connection: Connection, series_id: int, series: Series, occurrence: int, now: int, commit: Commit) -> None:
    """Move a paused occurrence to the first beat that has not passed."""
    due_at, skipped = next_occurrence(series.first_at, series.every_ms, series.due_at - series.every_ms, now)
    expires_at = None if series.ttl_ms is None else due_at + series.ttl_ms
    connection.execute(SQL["resume_occurrence"], (occurrence, due_at, now, expires_at))
    connection.execute(SQL["advance"], (series_id, series.first_at, due_at, 0, now))
    if skipped:
        (described,) = describe(connection, [occurrence])
        commit.skipped.append(Skipped(described, skipped))


def cancel(connection: Connection, id: int, now: int, commit: Commit) -> tuple[SeriesChange, Sequence[EndingRow]]:
    """Delete the series and cancel its active occurrence; return the change and the endings that follow at once."""
    series_id, series = _of_task(connection, id)
    if series_id is None or series is None:
        return SeriesChange(commit=commit), []
    forget(connection, series_id)
    change = SeriesChange(series_id, commit=commit)
    if row := connection.execute(SQL["occurrence"], (series_id,)).fetchone():
        occurrence, _, _ = _decode_occurrence(row[0])
        (change.occurrence,) = describe(connection, [occurrence])
        return change, stop_trees(connection, [occurrence], StopReason.CANCEL, now, change.commit)
    return change, []


def _of_task(connection: Connection, id: int) -> tuple[int | None, Series | None]:
    row = connection.execute(SQL["of_task"], (id,)).fetchone()
    return (None, None) if row is None else (row[0], _read(connection, row[0]))
