"""Rows as they are read and written, and the public records made from them.

A statement returns all its rows as one JSON text, and msgspec decodes it into these structs. So a read costs one call
into the engine and one into msgspec, however many rows it has.
"""

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import msgspec

from taskmill.errors import StoreCorrupt
from taskmill.model.durations import from_ms, optional_from_ms
from taskmill.model.io_budget import stored_budget
from taskmill.model.options import decode_tags
from taskmill.model.progress import StoredProgress, TaskProgress, readable_progress
from taskmill.model.records import AttemptError, HistoryRecord, TaskRecord
from taskmill.model.status import PENDING, Ending, ErrorKind, Status
from taskmill.model.task import Described, Links, NewTask
from taskmill.model.type_name import domain_of
from taskmill.policy.aging import effective_priority
from taskmill.policy.paused_time import clocks, has_expired
from taskmill.policy.progress import extrapolated, with_children
from taskmill.policy.rules import Rules
from taskmill.store.sql import load
from taskmill.store.sql.connection import Connection, encoded, one
from taskmill.store.sql.statements import SQL

T = TypeVar("T")


class EndingRow(NamedTuple):
    """The ending of a task, to be written to history."""

    id: int
    ending: Ending
    ended_at: int
    duration_ms: int | None
    result: str | None
    error: str | None


class _ErrorRow(msgspec.Struct, array_like=True):
    attempt: int
    at: int
    kind: ErrorKind
    error: str
    traceback: str | None
    node: str | None
    duration_ms: int | None

    def attempt_error(self) -> AttemptError:
        duration = None if self.duration_ms is None else timedelta(milliseconds=self.duration_ms)
        return AttemptError(self.attempt, from_ms(self.at), self.kind, self.error, self.traceback, self.node, duration)


def _errors(rows: Sequence[_ErrorRow]) -> tuple[AttemptError, ...]:
    return tuple(row.attempt_error() for row in rows)


class _CommonRow(msgspec.Struct, array_like=True):
    id: int
    type: str
    key: str | None
    label: str | None
    group: str
    priority: int
    payload: str
    tags: str | None
    attempt: int
    retries: int
    created_at: int
    due_at: int | None
    expires_at: int | None
    started_at: int | None
    parent_id: int | None
    progress: str | None
    last_error: str | None
    io: str | None


class ActiveRow(_CommonRow, array_like=True):
    status: Status
    urgency: int
    family: tuple[int, int, float | None] | None
    aged_from: int
    paused_at: int | None
    clock_from: int
    usual_ms: float | None
    may_expire: int
    """True (1) if the task ends when its deadline passes."""
    errors: list[_ErrorRow] | None = None


class HistoryRow(_CommonRow, array_like=True):
    ending: Ending
    ended_at: int
    duration_ms: int | None
    result: str | None
    error: str | None
    actual_io: str | None
    errors: list[_ErrorRow] | None = None


decode_active = msgspec.json.Decoder(list[ActiveRow]).decode
decode_history = msgspec.json.Decoder(list[HistoryRow]).decode
_decode_json = msgspec.json.Decoder().decode
_decode_progress = msgspec.json.Decoder(StoredProgress).decode


class View(NamedTuple):
    """The rules and the time by which rows are shown: tasks of a paused scope are shown as paused, for example."""

    rules: Rules
    now: int


def task_record(row: ActiveRow, view: View) -> TaskRecord | HistoryRecord:
    """Make the record of an active row; if the task has expired, the one that history will have."""

    def build() -> TaskRecord | HistoryRecord:
        shown = clocks(row, view.rules, view.now)
        row.expires_at = shown.expires_at
        common = _common(row)
        if shown.expires_at is not None and has_expired(row, shown, view.now):
            return HistoryRecord(
                **common,
                ending=Ending.EXPIRED,
                ended_at=from_ms(shown.expires_at),
                duration=None,
                result=None,
                error=None,
                actual_io=None,
            )
        aging = view.rules.declared.aging
        common["effective_priority"] = effective_priority(aging, row.urgency, shown.waited)
        if row.family is not None:
            children, ended, under_way = row.family
            common["progress"] = with_children(common["progress"], children, ended, under_way or 0.0, row.status)
        elif row.usual_ms is not None and row.started_at is not None:
            elapsed = timedelta(milliseconds=view.now - row.started_at)
            common["progress"] = extrapolated(common["progress"], elapsed, timedelta(milliseconds=row.usual_ms))
        return TaskRecord(**common, status=shown.status)

    return _checked(row, build)


def history_record(row: HistoryRow) -> HistoryRecord:
    return _checked(
        row,
        lambda: HistoryRecord(
            **_common(row),
            ending=row.ending,
            ended_at=from_ms(row.ended_at),
            duration=None if row.duration_ms is None else timedelta(milliseconds=row.duration_ms),
            result=None if row.result is None else _decode_json(row.result),
            error=row.error,
            actual_io=stored_budget(row.actual_io),
        ),
    )


def _common(row: ActiveRow | HistoryRow) -> dict[str, Any]:
    errors = _errors(row.errors) if row.errors else ()
    return {
        "id": row.id,
        "type": row.type,
        "domain": domain_of(row.type),
        "key": row.key,
        "label": row.label,
        "group": row.group,
        "priority": row.priority,
        "effective_priority": row.priority,
        "payload": _decode_json(row.payload),
        "tags": decode_tags(row.tags),
        "attempt": row.attempt,
        "retries": row.retries,
        "created_at": from_ms(row.created_at),
        "run_at": optional_from_ms(row.due_at),
        "expires_at": optional_from_ms(row.expires_at),
        "started_at": optional_from_ms(row.started_at),
        "parent_id": row.parent_id,
        "progress": _progress(row.progress),
        # The column was written before the last attempt began, so it lacks the error that ended the task.
        "last_error": errors[-1].error if errors else row.last_error,
        "io": stored_budget(row.io),
        "errors": errors,
    }


def _progress(stored: str | None) -> TaskProgress | None:
    return None if stored is None else readable_progress(_decode_progress(stored))


def _checked(row: _CommonRow, build: Callable[[], T]) -> T:
    try:
        return build()
    except (msgspec.MsgspecError, ValueError, OverflowError) as wrong:
        raise unreadable(row.id, _broken_column(row), wrong) from wrong


def unreadable(id: int, column: str | None, wrong: Exception) -> StoreCorrupt:
    where = "" if column is None else f" in column {column}"
    return StoreCorrupt(f"the stored row of task {id} is unreadable{where}: {wrong}")


def column_at(path: str, row: type[_CommonRow]) -> str | None:
    """Return the column named by an error message of msgspec, which ends with a path such as ``$[0][18]``."""
    found = _PATH.search(path)
    return None if found is None else row.__struct_fields__[int(found[1])]


def _broken_column(row: _CommonRow) -> str | None:
    """Return the first column that cannot be decoded, by decoding each one by itself."""
    for column, read in _READERS.items():
        value = getattr(row, column, None)
        if value is not None:
            try:
                read(value)
            except (msgspec.MsgspecError, ValueError, OverflowError):
                return column
    return None


_PATH = re.compile(r"\$\[(?:\d+|\.\.\.)\]\[(\d+)\]")
_READERS: dict[str, Callable[[Any], Any]] = {
    "payload": _decode_json,
    "tags": decode_tags,
    "progress": _progress,
    "io": stored_budget,
    "actual_io": stored_budget,
    "errors": _errors,
    "result": _decode_json,
    "created_at": from_ms,
    "due_at": from_ms,
    "expires_at": from_ms,
    "started_at": from_ms,
    "ended_at": from_ms,
    "duration_ms": from_ms,
}


UNREADABLE = (msgspec.MsgspecError, UnicodeError)
"""The exceptions that decoding a damaged row raises."""

_decode_described = msgspec.json.Decoder(list[Described]).decode
_decode_one = msgspec.json.Decoder(Described).decode


def describe(connection: Connection, ids: Sequence[int]) -> list[Described]:
    """Return the descriptions of these active tasks; that of a damaged row has only its id."""
    try:
        return _decode_described(one(connection, SQL["described"], encoded([(id,) for id in ids])))
    except UNREADABLE:
        if len(ids) == 1:
            return [_unreadable(ids[0])]
        return [task for id in ids for task in describe(connection, [id])]


def read_described(found: Sequence[msgspec.Raw]) -> list[Described] | None:
    """Decode descriptions that were read before; return ``None`` if one of them is damaged."""
    try:
        return [_decode_one(each) for each in found]
    except UNREADABLE:
        return None


def _unreadable(id: int) -> Described:
    return Described(
        id=id,
        type="",
        key=None,
        label=None,
        group="",
        priority=0,
        urgency=0,
        tags=None,
        created_at=0,
        aged_from=0,
    )


# Writing new tasks, and finding the tasks that conflict with a new key


def insert_rows(connection: Connection, tasks: Sequence[NewTask], first_id: int | None = None) -> int:
    """Write the rows and return the first of their consecutive ids; ``first_id`` is the planned one, if any."""
    statement, rows = _shortest(tasks)
    if first_id is None:
        connection.pass_over_lost_ids()
    first_id = connection.insert(SQL[statement], encoded(rows), len(tasks), first_id)
    load.count_new(connection, tasks)
    if rows is tasks and any(task.tags for task in tasks):
        connection.execute(SQL["insert_tags"], (first_id, first_id + len(tasks) - 1))
    return first_id


def _shortest(tasks: Sequence[NewTask]) -> tuple[str, Sequence[object]]:
    """Return the shortest statement that can store these tasks, with its rows: each value costs time."""
    is_uncommon = is_keyed = is_linked = False
    for task in tasks:
        is_uncommon = is_uncommon or not _is_common(task)
        is_keyed = is_keyed or task.key is not None or task.queued_at != task.created_at
        is_linked = is_linked or task.links is not None
    if is_linked and (is_uncommon or is_keyed):
        return "insert_links", tasks
    if is_uncommon:
        return "insert", tasks
    if is_keyed:
        return "insert_keyed", [_keyed(task) for task in tasks]
    if is_linked:
        return "insert_children", [
            (task.type, task.group, task.priority, task.payload, task.created_at, task.links and task.links.parent_id)
            for task in tasks
        ]
    return "insert_plain", [(task.type, task.group, task.priority, task.payload, task.created_at) for task in tasks]


def _keyed(task: NewTask) -> tuple[object, ...]:
    return (
        task.type,
        task.key,
        task.group,
        task.priority,
        task.payload,
        task.created_at,
        task.queued_at,
        task.replaced,
        task.place_id,
    )


def _is_common(task: NewTask) -> bool:
    """True if the task has only common options, which include a key and a parent."""
    return (
        (task.links is None or _is_just_a_child(task.links))
        and task.status is PENDING
        and task.expires_at is None
        and task.tags is None
        and task.io is None
        and task.label is None
        and task.overrides is None
        and task.ttl_ms is None
        and task.due_at is None
        and task.gate_id is None
        and task.stop is None
    )


def _is_just_a_child(links: Links) -> bool:
    return (
        links.series_id is None
        and links.on_dependency_failure is None
        and links.on_parent_expiry is None
        and not links.held
    )


def key_holder(connection: Connection, type: str, key: str | None) -> int | None:
    """Return the active task that has the key."""
    return _id(connection, "key_holder", type, key)


def key_stopper(connection: Connection, type: str, key: str | None) -> int | None:
    """Return the task that must end before another task with the key may start."""
    return _id(connection, "key_stopper", type, key)


def _id(connection: Connection, statement: str, type: str, key: str | None) -> int | None:
    row = None if key is None else connection.execute(SQL[statement], (type, key)).fetchone()
    return None if row is None else row[0]
