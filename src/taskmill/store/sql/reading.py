"""Reading records, counts and statistics, mostly with one statement that returns one JSON value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from taskmill.model.cluster import FailedElsewhere, RunningElsewhere, WorkElsewhere
from taskmill.model.filters import Filters
from taskmill.model.records import Dependency, HistoryRecord, TaskGraph, TaskRecord, TypeStats
from taskmill.model.status import Ending, Status
from taskmill.model.type_name import domain_of
from taskmill.policy.io_room import mean_io
from taskmill.store import sql
from taskmill.store.sql import counting, expired
from taskmill.store.sql.connection import Connection, decode_ids, encoded, one
from taskmill.store.sql.last_ended import NEWEST_FIRST, OLDEST_FIRST, last_ended
from taskmill.store.sql.machine import moved_by_type
from taskmill.store.sql.rows import (
    ActiveRow,
    HistoryRow,
    View,
    column_at,
    decode_active,
    decode_history,
    history_record,
    task_record,
    unreadable,
)
from taskmill.store.sql.statements import SQL

T = TypeVar("T")

_decode = msgspec.json.Decoder().decode
_decode_running = msgspec.json.Decoder(list[RunningElsewhere]).decode
_decode_failed = msgspec.json.Decoder(list[FailedElsewhere]).decode
_decode_edges = msgspec.json.Decoder(list[Dependency]).decode

MOST_ENDED = 10_000
"""The largest number of ended tasks, and of failures, in one read of the work of other processes."""

_TALLIED = frozenset({"status", "type", "domain", "group"})


def get(connection: Connection, view: View, id: int) -> TaskRecord | HistoryRecord | None:
    return _first(connection, view, "id = ?", (id,))


def find(connection: Connection, view: View, type: str, key: str) -> TaskRecord | HistoryRecord | None:
    """Return the active task with this key, else the one that ended last."""
    return _first(connection, view, "type = ? AND key = ?", (type, key))


def _first(
    connection: Connection, view: View, where: str, parameters: Sequence[Any]
) -> TaskRecord | HistoryRecord | None:
    # One snapshot, so that a task that moves to history in between is found in one of the two tables.
    with connection.snapshot():
        if active := _active(connection, view, where, parameters, "ORDER BY id DESC LIMIT 1"):
            return active[0]
        ended = _ended(connection, where, parameters, f"{NEWEST_FIRST} LIMIT 1")
        return ended[0] if ended else None


def tasks(connection: Connection, view: View, filters: Filters) -> list[TaskRecord]:
    """Return active tasks, oldest first; with ``limit``, those closest to ``before`` or ``after``."""
    if isinstance(filters.status, Ending):
        return []
    where, parameters = _active_conditions(connection, view, filters)
    where = _cut(where, parameters, filters)
    if filters.limit is not None and filters.before is not None and filters.after is None:
        where = f"id IN (SELECT id FROM taskmill_task AS t WHERE {where} ORDER BY id DESC LIMIT ?)"  # noqa: S608
        parameters.append(filters.limit)
    found = _active(connection, view, where, parameters, _limit("ORDER BY id", filters, parameters))
    return [record for record in found if isinstance(record, TaskRecord)]


def next_due(connection: Connection, view: View) -> TaskRecord | None:
    """Return the scheduled task that is due first."""
    found = _active(connection, view, "status = 'scheduled'", (), "ORDER BY due_at LIMIT 1")
    return found[0] if found and isinstance(found[0], TaskRecord) else None


def history(connection: Connection, view: View, filters: Filters) -> list[HistoryRecord]:
    """Return ended tasks, the last to end first.

    ``before`` returns tasks that ended before that task, ``after`` tasks that ended after it.
    """
    if isinstance(filters.status, Status):
        return []
    where, parameters, order = _selection(filters)
    if filters.status not in (None, Ending.EXPIRED):
        return _ended(connection, where, parameters, order)
    with connection.snapshot():
        return _ended(connection, where, parameters, order, expired.with_expired_history(connection, view))


def ended_ids(connection: Connection, filters: Filters) -> list[int]:
    """Return the ids of the tasks in history that match, the last to end first."""
    where, parameters, order = _selection(filters)
    found = connection.execute(f"SELECT id FROM taskmill_history WHERE {where} {order}", parameters)  # noqa: S608
    return [id for (id,) in found.fetchall()]


def _selection(filters: Filters) -> tuple[str, list[Any], str]:
    """Return the condition, its parameters and the order for a read of history."""
    where, parameters = _conditions(filters, "taskmill_history", "ending")
    for id, than, at_a_loss in ((filters.before, "<", 2**63 - 1), (filters.after, ">", -1)):
        if id is not None:
            where += (
                f" AND (ended_at, id) {than} (SELECT coalesce(max(ended_at), {at_a_loss}), ?"  # noqa: S608
                " FROM taskmill_history WHERE id = ?)"
            )
            parameters += [id, id]
    turns_back = filters.after is not None and filters.before is None
    if filters.limit is not None and (turns_back or (filters.status is None and filters.type is None)):
        query, parameters = last_ended(
            where, parameters, filters.limit, order=OLDEST_FIRST if turns_back else NEWEST_FIRST
        )
        where = f"id IN (SELECT id FROM ({query}) AS last)"  # noqa: S608 - fixed fragments
    order = _limit(NEWEST_FIRST, filters, parameters)
    return where, parameters, order


def _cut(where: str, parameters: list[Any], filters: Filters) -> str:
    for id, than in ((filters.before, "<"), (filters.after, ">")):
        if id is not None:
            where += f" AND id {than} ?"
            parameters.append(id)
    return where


def count(connection: Connection, view: View, filters: Filters) -> int:
    """Count matching tasks: active ones, or ended ones if ``status`` is an ending."""
    given = {name for name in Filters.__struct_fields__ if getattr(filters, name) not in (None, {})}
    if given <= _TALLIED and not isinstance(filters.status, Ending):
        with connection.snapshot():
            return _count_active(connection, view, filters)
    before, moments = "", list[int]()
    if filters.status is Ending.EXPIRED:
        before, moments = expired.with_expired_history(connection, view)
    if isinstance(filters.status, Ending) and given <= _TALLIED and not before:
        where, parameters = _conditions(filters, "taskmill_tally", "ending")
        statement = f"SELECT CAST(coalesce(sum(kept), 0) AS BIGINT) FROM taskmill_tally WHERE {where}"  # noqa: S608
    else:
        if isinstance(filters.status, Ending):
            table = "taskmill_history"
            where, parameters = _conditions(filters, table, "ending")
        else:
            table = "taskmill_task AS t"
            where, parameters = _active_conditions(connection, view, filters)
        where = _cut(where, parameters, filters)
        statement = f"{before}SELECT count(*) FROM {table} WHERE {where}"  # noqa: S608
        parameters = [*moments, *parameters]
    found: int = connection.execute(statement, parameters).fetchone()[0]
    return found if filters.limit is None else min(found, filters.limit)


def _count_active(connection: Connection, view: View, filters: Filters) -> int:
    """Count active tasks by status, type, domain and group, without reading them."""
    counted = counting.running(connection) if filters.status is Status.RUNNING else counting.shown(connection, view)
    return sum(
        n
        for (group, type, status), n in counted.items()
        if (status != Ending.EXPIRED if filters.status is None else status == filters.status)
        and filters.type in (None, type)
        and filters.domain in (None, domain_of(type))
        and filters.group in (None, group)
    )


def counts(connection: Connection, view: View) -> dict[str, int]:
    """Return the number of tasks in every status and with every ending."""
    found = {str(word): 0 for word in (*Status, *Ending)}
    with connection.snapshot():
        for (_, _, word), number in counting.shown(connection, view).items():
            found[word] += number
        for word, number in _decode(one(connection, SQL["ended_counts"])).items():
            found[word] += number
    return found


def stats(connection: Connection, type: str) -> TypeStats:
    rows: dict[str, list[int]] = _decode(one(connection, SQL["stats"], type))
    total = sum(n for n, _ in rows.values())
    completed, duration_ms = rows.get("completed", [0, 0])
    failed = sum(rows.get(ending, [0, 0])[0] for ending in ("failed", "dead_letter"))
    return TypeStats(
        count=total,
        completed=completed,
        failed=failed,
        failure_rate=failed / total if total else 0.0,
        avg_duration=timedelta(milliseconds=duration_ms / completed) if completed else None,
        avg_io=mean_io(moved_by_type(connection, type)),
    )


def tag_values(connection: Connection, view: View, name: str) -> dict[str, int]:
    """Return the number of active tasks for each value of a tag, most frequent first."""
    with connection.snapshot():
        if not expired.any_expired(connection, view):
            return dict(connection.execute(SQL["tag_values"], (name,)).fetchall())
        text, moments = expired.at_present(connection.text(SQL["tag_values_unexpired"]), view)
        return dict(connection.execute(text, (name, *moments)).fetchall())


def children(connection: Connection, id: int) -> list[HistoryRecord]:
    """Return the ended children of a task, by id; for a task that was brought back, only those spawned since."""
    return _ended(
        connection,
        "parent_id = ? AND id > coalesce((SELECT children_after FROM taskmill_task WHERE id = ?), 0)",
        (id, id),
        "ORDER BY id",
    )


def graph(connection: Connection, view: View, id: int) -> TaskGraph | None:
    """Return all tasks that are connected with a task through families and dependencies, or None if it is unknown."""
    with connection.snapshot():
        ids = one(connection, SQL["tied"], id)
        found = _among(connection, view, ids)
        edges = _decode_edges(one(connection, SQL["edges_among"], ids))
    tasks = {record.id: record for record in sorted(found, key=lambda record: record.id)}
    return TaskGraph(tasks=tasks, dependencies=edges) if id in tasks else None


def records(connection: Connection, view: View, ids: Sequence[int]) -> dict[int, TaskRecord | HistoryRecord]:
    """Return the records of these tasks, active or ended."""
    with connection.snapshot():
        return {record.id: record for record in _among(connection, view, encoded(ids))}


def _among(connection: Connection, view: View, ids: str) -> list[TaskRecord | HistoryRecord]:
    where = connection.text(SQL["among_ids"])
    return [*_active(connection, view, where, (ids,), ""), *_ended(connection, where, (ids,), "")]


def work_elsewhere(connection: Connection, node: int | None, ended_since: int, news_since: int) -> WorkElsewhere:
    """Return the tasks that run on nodes other than ``node``, and the tasks that ended or failed since."""
    query, parameters = last_ended("ended_at >= ?", (ended_since,), MOST_ENDED)
    with connection.snapshot():
        running = _decode_running(one(connection, SQL["running_elsewhere"], node))
        ended = connection.execute(query, parameters).fetchall()
        failed = _decode_failed(one(connection, SQL["failed_since"], ended_since, MOST_ENDED))
        failed.sort(key=lambda failure: (failure.at, failure.id, failure.attempt), reverse=True)
        left_out = 0
        for found, count in ((ended, "count_ended_since"), (failed, "count_failed_since")):
            if len(found) == MOST_ENDED:
                news: int = one(connection, SQL[count], news_since)
                left_out += max(0, news - MOST_ENDED)
    return WorkElsewhere(running, ended, failed, left_out)


def ended_among(connection: Connection, ids: Sequence[int]) -> list[int]:
    return decode_ids(one(connection, SQL["ended_among"], encoded(ids)))


def _limit(order: str, filters: Filters, parameters: list[Any]) -> str:
    if filters.limit is None:
        return order
    parameters.append(filters.limit)
    return f"{order} LIMIT ?"


_LAST_ERRORS = (
    "SELECT e.task_id FROM taskmill_error AS e WHERE NOT EXISTS ("
    "SELECT 1 FROM taskmill_error AS later WHERE later.task_id = e.task_id AND later.attempt > e.attempt)"
)


def _of_last_error(filters: Filters) -> list[tuple[str, str | None]]:
    # The type is given too, because the index of groups ends with it.
    return [("exception", filters.exception), ("location", filters.location), ("type", filters.type)]


def _conditions(
    filters: Filters, table: str, status_column: str, instants: Sequence[int] = ()
) -> tuple[str, list[Any]]:
    """Return the WHERE condition for filters, as fixed fragments joined by AND, and its parameters."""
    where: list[str] = ["true"]
    parameters: list[Any] = []

    def add(fragment: str, *values: Any) -> None:
        where.append(fragment)
        parameters.extend(values)

    if filters.status is not None:
        add(f"{status_column} = ?", *instants, str(filters.status))
    if filters.type is not None:
        add("type = ?", filters.type)
    if filters.domain is not None:
        # All names that start with "domain::"; ';' is the character after ':'.
        add("type >= ? AND type < ?", f"{filters.domain}::", f"{filters.domain}:;")
    if filters.group is not None:
        add("group_name = ?", filters.group)
    if filters.key is not None:
        add("key = ?", filters.key)
    if filters.parent is not None:
        add("parent_id = ?", filters.parent)
    if filters.exception is not None or filters.location is not None:
        last = [(f"e.{name} = ?", value) for name, value in _of_last_error(filters) if value is not None]
        add(f"id IN ({_LAST_ERRORS} AND {' AND '.join(test for test, _ in last)})", *(value for _, value in last))
    at = "created_at" if table == "taskmill_task" else "ended_at"
    if filters.since is not None:
        add(f"{at} >= ?", filters.since)
    if filters.until is not None:
        add(f"{at} < ?", filters.until)
    for name, value in filters.tags.items():
        add(f"id IN (SELECT task_id FROM {table}_tag WHERE name = ? AND value = ?)", name, value)  # noqa: S608
    if filters.tag_prefix is not None:
        prefix = filters.tag_prefix
        add(
            f"id IN (SELECT task_id FROM {table}_tag WHERE substr(name, 1, CAST(? AS INTEGER)) = ?)",  # noqa: S608
            len(prefix),
            prefix,
        )
    return " AND ".join(where), parameters


def _active_conditions(connection: Connection, view: View, filters: Filters) -> tuple[str, list[Any]]:
    """Return the condition for active tasks; expired ones count as ended even before they are in history."""
    column, moments = expired.shown_status(connection, view)
    if filters.status is Status.RUNNING:
        # A condition that the index of running tasks serves.
        where, parameters = _conditions(msgspec.structs.replace(filters, status=None), "taskmill_task", "status")
        return f"status = 'running' AND started_at IS NOT NULL AND {where}", parameters
    where, parameters = _conditions(filters, "taskmill_task", column, moments)
    if filters.status is None and moments:
        where += f" AND {column} <> 'expired'"
        parameters += moments
    return where, parameters


def _active(
    connection: Connection, view: View, where: str, parameters: Sequence[Any], order: str
) -> list[TaskRecord | HistoryRecord]:
    rows = _rows(connection, "taskmill_task", "active_rows", decode_active, (where, parameters, order))
    return [task_record(row, view) for row in rows]


def _ended(
    connection: Connection,
    where: str,
    parameters: Sequence[Any],
    order: str,
    before: tuple[str, Sequence[int]] = ("", ()),
) -> list[HistoryRecord]:
    wanted = (where, [*before[1], *parameters], order)
    rows = _rows(connection, "taskmill_history", "history_rows", decode_history, wanted, before[0])
    return [history_record(row) for row in rows]


def _rows(
    connection: Connection,
    table: str,
    statement: str,
    decode: Callable[[str], list[T]],
    wanted: tuple[str, Sequence[Any], str],
    before: str = "",
) -> list[T]:
    where, parameters, order = wanted
    rows = before + connection.text(SQL[statement]).replace("{where}", where).replace("{order}", order)
    try:
        return decode(one(connection, rows, *parameters))
    except (msgspec.MsgspecError, UnicodeError) as wrong:
        among = f"{before}SELECT id FROM {table} AS t WHERE {where} {order}"  # noqa: S608
        ids = connection.execute(among, parameters).fetchall()
        if len(ids) == 1:
            row = ActiveRow if table == "taskmill_task" else HistoryRow
            column = sql.damage.damaged_column(connection, table, ids[0][0]) or column_at(str(wrong), row)
            raise unreadable(ids[0][0], column, wrong) from wrong
        return [one for (id,) in ids for one in _rows(connection, table, statement, decode, ("id = ?", (id,), ""))]
