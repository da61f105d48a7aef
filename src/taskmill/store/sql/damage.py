"""Damaged rows: finding the row and the column, and setting damaged tasks aside so that the others can run.

Undamaged rows cost nothing: rows are examined only after a request has failed to decode what it read. They are checked
in batches by msgspec, and one by one in a batch that fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec

from taskmill.errors import StoreCorrupt, TaskmillError
from taskmill.model.attempt import StopReason
from taskmill.model.commit import UNREADABLE_ROW, Damage, SetAside
from taskmill.model.controls import Bucket, Change
from taskmill.model.cron import CronState
from taskmill.model.durations import Instant
from taskmill.model.status import Ending, OnDependencyFailure, Status
from taskmill.model.task import NewTask
from taskmill.store.sql.connection import Connection, decode_ids, one
from taskmill.store.sql.endings import end_tasks
from taskmill.store.sql.load import recount
from taskmill.store.sql.rows import EndingRow
from taskmill.store.sql.statements import SQL

UNDECODABLE = (msgspec.MsgspecError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
"""The exceptions that reading a damaged value may raise; nothing else in a store raises them."""

BATCH = 500
_LONGEST_SHOWN = 60

_Whole = int | bool
_Json = msgspec.Raw
_NOW = object()


class _Column(NamedTuple):
    name: str
    holds: Any
    harmless: Any
    """The value that replaces damage, so that the task can be ended."""


_KEPT = {
    *("type", "key", "label", "group_name", "priority", "payload", "tags", "overrides", "attempt", "retries"),
    *("created_at", "due_at", "expires_at", "started_at", "parent_id", "series_id"),
    *("saved", "progress", "io", "actual_io", "last_error"),
}
"""The columns of a task that history has as well."""
_TASK = (
    _Column("type", str, ""),
    _Column("key", str | None, None),
    _Column("label", str | None, None),
    _Column("group_name", str, ""),
    _Column("priority", int, 128),
    _Column("urgency", int, 128),
    _Column("status", Status, Status.PENDING),
    # Assume a stop request: a task that was asked to stop has freed its key, and another may hold it.
    _Column("stop", Literal["cancel", "supersede", "fail"] | None, StopReason.CANCEL),
    _Column("payload", str, "null"),
    _Column("tags", str | None, None),
    _Column("overrides", str | None, None),
    _Column("attempt", int, 0),
    _Column("retries", int, 0),
    _Column("crashes", int, 0),
    _Column("interrupted", _Whole, False),
    _Column("created_at", Instant, _NOW),
    _Column("queued_at", Instant, _NOW),
    _Column("renewed_at", Instant | None, None),
    _Column("place_id", int | None, None),
    _Column("due_at", Instant | None, None),
    _Column("due_is_relative", _Whole, False),
    _Column("expires_at", Instant | None, None),
    _Column("started_at", Instant | None, None),
    _Column("ttl_ms", int | None, None),
    _Column("parent_id", int | None, None),
    _Column("children", int, 0),
    _Column("children_ended", int, 0),
    _Column("children_after", int, 0),
    _Column("fail_fast", _Whole, True),
    _Column("max_children", int | None, None),
    _Column("held", _Whole, False),
    _Column("on_parent_expiry", str | None, None),
    _Column("outcome", str | None, None),
    _Column("finalizing", _Whole, False),
    _Column("awaited", _Whole, True),
    _Column("on_dependency_failure", OnDependencyFailure | None, None),
    _Column("series_id", int | None, None),
    _Column("cron", str | None, None),
    _Column("paused_at", Instant | None, None),
    _Column("preempted", int, 0),
    _Column("frozen", _Whole, False),
    _Column("gate_id", int | None, None),
    _Column("saved", str | None, None),
    _Column("replaced", str | None, None),
    # Assume that the key was passed on: another task may hold it.
    _Column("gave_key", _Whole, True),
    _Column("progress", str | None, None),
    _Column("io", str | None, None),
    _Column("actual_io", str | None, None),
    _Column("last_error", str | None, None),
)
_HISTORY = (
    *(column for column in _TASK if column.name in _KEPT),
    _Column("ending", Ending, None),
    _Column("ended_at", Instant, None),
    _Column("duration_ms", int | None, None),
    _Column("result", str | None, None),
    _Column("error", str | None, None),
)
_HARMLESS = {column.name: column.harmless for column in _TASK}
_CONTENT = {"label", "payload", "tags", "overrides", "saved", "replaced", "progress", "io", "actual_io", "last_error"}
"""Texts that only their own task needs: damage in them is handled when the task is claimed or read."""
_SERIES = (
    _Column("template", str, None),
    _Column("every_ms", Annotated[int, msgspec.Meta(gt=0)], None),
    _Column("first_at", Instant, None),
    _Column("due_at", Instant, None),
    _Column("ttl_ms", int | None, None),
    _Column("runs", int, None),
    _Column("max_runs", int | None, None),
    _Column("paused", _Whole, None),
    _Column("made_at", Instant | None, None),
)
_OTHERS = {
    "taskmill_control": (
        "kind || ' ' || name",
        (
            _Column("kind", Literal["scheduler", "domain", "group", "type"], None),
            _Column("name", str, None),
            _Column("change", str | None, None),
            _Column("paused_at", Instant | None, None),
            _Column("resume_at", Instant | None, None),
            _Column("resume_is_relative", _Whole, None),
            _Column("bucket", str | None, None),
            _Column("full_at", int | None, None),
        ),
    ),
    "taskmill_ended_pause": (
        "kind || ' ' || name",
        (
            _Column("kind", Literal["scheduler", "domain", "group"], None),
            _Column("name", str, None),
            _Column("since", Instant, None),
            _Column("until", Instant, None),
            _Column("reached", int, None),
        ),
    ),
    "taskmill_setting": ("name", (_Column("value", str, None),)),
    "taskmill_type": ("name", (_Column("name", str, None), _Column("defaults", str, None))),
    "taskmill_dependency": (
        "task_id",
        (_Column("task_id", int, None), _Column("on_id", int, None), _Column("open", _Whole, None)),
    ),
}
"""Key and columns of rows that are never set aside, because a limit, a pause or a dependency would be lost."""
_CRON = (
    _Column("position", int, None),
    _Column("type", str, None),
    _Column("state", str, None),
    _Column("task_id", int | None, None),
    _Column("runs", int, None),
)
_IO = tuple(_Column(name, int, None) for name in ("runs", "disk_read", "disk_write", "net_rx", "net_tx"))
_TALLY = (
    _Column("type", str, None),
    _Column("group_name", str, None),
    _Column("ending", Ending, None),
    _Column("ended", int, None),
    _Column("kept", int, None),
    _Column("duration_ms", int, None),
)
_LOAD = (
    _Column("group_name", str, None),
    _Column("type", str, None),
    _Column("status", Status, None),
    _Column("tasks", int, None),
)
_KEYS = {
    "taskmill_series": "id",
    "taskmill_cron": "name",
    "taskmill_io": "type",
    "taskmill_tally": "type",
    "taskmill_load": "type",
}
"""Tables whose damaged rows can be deleted, with their keys."""
EXAMINED = {
    **{table: columns for table, (_, columns) in _OTHERS.items()},
    "taskmill_task": _TASK,
    "taskmill_history": _HISTORY,
    "taskmill_series": _SERIES,
    "taskmill_cron": _CRON,
    "taskmill_io": _IO,
    "taskmill_tally": _TALLY,
    "taskmill_load": _LOAD,
}
_encode = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder(_Json).decode
_DECODED = {
    "template": msgspec.json.Decoder(NewTask).decode,
    "state": msgspec.json.Decoder(CronState).decode,
    "outcome": _decode_json,
    "change": msgspec.json.Decoder(Change).decode,
    "bucket": msgspec.json.Decoder(Bucket).decode,
}


def corrupt(wrong: Exception, store: str) -> StoreCorrupt:
    """Return the error for a value that cannot be read, if its row is unknown."""
    if isinstance(wrong, StoreCorrupt) and str(wrong).startswith(store):
        return wrong
    why = str(wrong) if isinstance(wrong, TaskmillError) else f"a stored value cannot be read: {wrong}"
    return StoreCorrupt(f"{store}: {why}; `taskmill doctor {store}` lists the damaged rows")


def find(connection: Connection) -> Iterator[Damage]:
    """Examine all rows and yield the damage found."""
    yield from _find_what_can_be_set_aside(connection)
    for table, (key, columns) in _OTHERS.items():
        yield from _damaged_rows(connection, table, key, columns)
    yield from _damaged_in_batches(connection, "taskmill_history", _HISTORY)


def _find_what_can_be_set_aside(connection: Connection) -> Iterator[Damage]:
    yield from _damaged_in_batches(connection, "taskmill_task", _TASK)
    for table, key in _KEYS.items():
        yield from _damaged_rows(connection, table, key, EXAMINED[table])


def damaged_column(connection: Connection, table: str, id: int) -> str | None:
    """Return the first column of a task, active or ended, that cannot be read."""
    columns = _TASK if table == "taskmill_task" else _HISTORY
    names = ", ".join(column.name for column in columns)
    row = connection.execute(f"SELECT {names} FROM {table} WHERE id = ?", (id,)).fetchone()  # noqa: S608 - our own names
    found = () if row is None else _damage_in(table, id, columns, row, contents=True)
    return next((damage.column for damage in found), None)


def set_aside(connection: Connection, now: int, *, running: bool) -> SetAside:
    """End damaged tasks as dead letters; delete damaged series, cron tasks, counts and IO totals.

    The indexes of the tasks are rebuilt first: SQLite refuses to change a row that does not match its index entries.

    Running tasks are left alone, because their handlers are active. With ``running``, tasks that are marked as running
    are set aside too, because no handler of this process is active; tasks of other live nodes are still left alone.
    """
    connection.be_alone()
    connection.execute(SQL["rebuild_indexes"])
    done = SetAside()
    tasks: dict[int, list[Damage]] = {}
    for damage in list(_find_what_can_be_set_aside(connection)):
        if damage.table == "taskmill_task":
            tasks.setdefault(damage.id, []).append(damage)
        elif _forget(connection, damage):
            done.damaged.append(damage)
    for id in decode_ids(one(connection, SQL["at_work"], running)) if tasks else ():
        tasks.pop(id, None)
    for id, found in tasks.items():
        done.damaged += found
        _make_harmless(connection, id, [damage.column for damage in found], now)
    endings = [
        EndingRow(id, Ending.DEAD_LETTER, now, None, None, f"{UNREADABLE_ROW}: {_reasons(found)}")
        for id, found in tasks.items()
    ]
    end_tasks(connection, endings, now, done.commit)
    if tasks:
        # The tasks were counted with the values that they had before the damage.
        recount(connection)
    return done


def _forget(connection: Connection, damage: Damage) -> bool:
    """Delete a row that no task needs; return False if it is gone or cannot be found by its key."""
    if damage.table == "taskmill_tally":
        forgotten = connection.execute(SQL["forget_damaged_counts"]).rowcount
        connection.execute(SQL["count_anew"])
        return forgotten > 0
    if damage.table == "taskmill_load":
        recount(connection)
        return True
    if damage.table == "taskmill_series":
        connection.execute("UPDATE taskmill_task SET series_id = NULL WHERE series_id = ?", (damage.id,))
    statement = f"DELETE FROM {damage.table} WHERE {_KEYS[damage.table]} = ?"  # noqa: S608 - our own names
    return connection.execute(statement, (damage.id,)).rowcount > 0


def _make_harmless(connection: Connection, id: int, columns: Sequence[str], now: int) -> None:
    values = [now if (value := _HARMLESS[column]) is _NOW else value for column in columns]
    changes = ", ".join(f"{column} = ?" for column in columns)
    connection.execute(f"UPDATE taskmill_task SET {changes} WHERE id = ?", (*values, id))  # noqa: S608 - our own names


def _reasons(found: Sequence[Damage]) -> str:
    return "; ".join(f"column {damage.column} holds {damage.value}" for damage in found)


def _damaged_in_batches(connection: Connection, table: str, columns: Sequence[_Column]) -> Iterator[Damage]:
    names = ", ".join(column.name for column in columns)
    shape = msgspec.defstruct("Row", [(column.name, column.holds) for column in columns], array_like=True)
    words = [place for place, column in enumerate(columns, start=1) if column.name not in _CONTENT]
    texts = [place for place, column in enumerate(columns, start=1) if column.name in _DECODED]

    def are_sound(rows: Sequence[Sequence[Any]]) -> bool:
        try:
            msgspec.convert([row[1:] for row in rows], list[shape])  # type: ignore[valid-type]
            # Encoding fails for text that was not valid UTF-8.
            _encode([[row[place] for place in words] for row in rows])
            for row in rows:
                for place in texts:
                    if row[place] is not None:
                        _DECODED[columns[place - 1].name](row[place])
        except UNDECODABLE:
            return False
        return True

    after = -(2**63)
    while True:
        rows = connection.execute(
            f"SELECT id, {names} FROM {table} WHERE id > ? ORDER BY id LIMIT {BATCH}",  # noqa: S608 - as above
            (after,),
        ).fetchall()
        if not are_sound(rows):
            for id, *values in rows:
                yield from _damage_in(table, id, columns, values)
        if len(rows) < BATCH:
            return
        after = rows[-1][0]


def _damaged_rows(connection: Connection, table: str, key: str, columns: Sequence[_Column]) -> Iterator[Damage]:
    names = ", ".join(column.name for column in columns)
    for id, *values in connection.execute(f"SELECT {key}, {names} FROM {table}").fetchall():  # noqa: S608 - as above
        yield from _damage_in(table, id, columns, values)


def _damage_in(
    table: str, id: Any, columns: Sequence[_Column], values: Sequence[Any], *, contents: bool = False
) -> Iterator[Damage]:
    for column, value in zip(columns, values, strict=True):
        try:
            msgspec.convert(value, column.holds)
            if contents or column.name not in _CONTENT:
                _encode(value)
            if value is not None and column.name in _DECODED:
                _DECODED[column.name](value)
        except UNDECODABLE:
            yield Damage(table, id, column.name, _shown(value))


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


T = TypeVar("T")
E = TypeVar("E", bound=Exception)


class Locating(ABC):
    """The handling of damaged rows, shared by the reading and the writing half of a store."""

    name: str

    @abstractmethod
    async def _read(self, request: Callable[[Connection], T]) -> T: ...

    def _decoded(self, request: Callable[[Connection], T], connection: Connection) -> T:
        """Run a request that reads, and raise ``StoreCorrupt`` with the damaged row if something cannot be decoded."""
        try:
            return request(connection)
        except StoreCorrupt as wrong:
            raise corrupt(wrong, self.name) from wrong
        except UNDECODABLE as wrong:
            if isinstance(wrong, TaskmillError):
                raise
            raise self._naming_damage(corrupt(wrong, self.name), connection) from wrong

    async def _located(self, wrong: StoreCorrupt) -> StoreCorrupt:
        """Find the row that a writing request could not read."""
        return await self._read(lambda connection: self._naming_damage(wrong, connection))

    def _naming_damage(self, wrong: E, connection: Connection) -> E | StoreCorrupt:
        """Return the error, or one that names the first damage found."""
        if not isinstance(wrong, StoreCorrupt):
            return wrong
        try:
            found = next(find(connection), None)
        except UNDECODABLE:
            # The rows cannot be read one by one either, so the damaged one stays unnamed.
            found = None
        if found is None:
            return wrong
        return StoreCorrupt(
            f"{self.name}: {found}; `taskmill doctor {self.name}` lists all damage, "
            "and a dispatcher sets damaged tasks aside as dead letters"
        )
