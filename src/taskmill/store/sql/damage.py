"""Damaged rows: finding the row and the column, and setting damaged tasks aside so that the others can run.

Undamaged rows cost nothing: rows are examined only after a request has failed to decode what it read. They are checked
in batches by msgspec, and one by one in a batch that fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from taskmill.model.commit import UNREADABLE_ROW, Damage, SetAside
from taskmill.model.controls import Bucket, Change
from taskmill.model.cron import CronState
from taskmill.model.status import Ending
from taskmill.model.task import NewTask
from taskmill.store.sql.connection import Connection, decode_ids, one
from taskmill.store.sql.damage_columns import (
    CONTENT,
    ERROR,
    EXAMINED,
    HARMLESS,
    HISTORY,
    KEYS,
    NOW,
    OTHERS,
    TAGS,
    TASK,
    Column,
)
from taskmill.store.sql.load import recount
from taskmill.store.sql.locating import UNDECODABLE
from taskmill.store.sql.rows import EndingRow
from taskmill.store.sql.statements import SQL

BATCH = 500
_LONGEST_SHOWN = 60

_encode = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder(msgspec.Raw).decode
_DECODED = {
    "template": msgspec.json.Decoder(NewTask).decode,
    "state": msgspec.json.Decoder(CronState).decode,
    "outcome": _decode_json,
    "change": msgspec.json.Decoder(Change).decode,
    "bucket": msgspec.json.Decoder(Bucket).decode,
}


def find(connection: Connection) -> Iterator[Damage]:
    """Examine all rows and yield the damage found."""
    yield from _find_what_can_be_set_aside(connection)
    for table, (key, columns) in OTHERS.items():
        yield from _damaged_rows(connection, table, key, columns)
    yield from _damaged_in_batches(connection, "taskmill_history", HISTORY)
    yield from _damaged_in_batches(connection, "taskmill_error", ERROR, ("task_id", "attempt"))


def _find_what_can_be_set_aside(connection: Connection) -> Iterator[Damage]:
    yield from _damaged_in_batches(connection, "taskmill_task", TASK)
    yield from _damaged_tags(connection)
    for table, key in KEYS.items():
        if table != TAGS:
            yield from _damaged_rows(connection, table, key, EXAMINED[table])


def damaged_column(connection: Connection, table: str, id: int) -> str | None:
    """Return the first column of a task, active or ended, that cannot be read; ``errors`` for those of its attempts."""
    columns = TASK if table == "taskmill_task" else HISTORY

    def damaged(table: str, key: str, columns: Sequence[Column]) -> Iterator[Damage]:
        names = ", ".join(column.name for column in columns)
        rows = connection.execute(f"SELECT {names} FROM {table} WHERE {key} = ?", (id,))  # noqa: S608 - our own names
        for row in rows.fetchall():
            yield from _damage_in(table, id, columns, row, contents=True)

    for damage in damaged(table, "id", columns):
        return damage.column
    return "errors" if any(damaged("taskmill_error", "task_id", ERROR)) else None


def set_aside(connection: Connection, now: int, *, running: bool) -> SetAside:
    """End damaged tasks as dead letters; delete damaged series, cron tasks, counts and IO totals.

    If a tag of a task is damaged, its tags are deleted from the table that finds tasks by tags; its record keeps them.

    The indexes of the tasks are rebuilt first: SQLite refuses to change a row that does not match its index entries.

    Running tasks are left alone, because their handlers are active. With ``running``, tasks that are marked as running
    are set aside too, because no handler of this process is active; tasks of other live nodes are still left alone.
    """
    from taskmill.store.sql.endings import end_tasks  # here, because readers of damage need none of it

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
    statement = f"DELETE FROM {damage.table} WHERE {KEYS[damage.table]} = ?"  # noqa: S608 - our own names
    return connection.execute(statement, (damage.id,)).rowcount > 0


def _make_harmless(connection: Connection, id: int, columns: Sequence[str], now: int) -> None:
    values = [now if (value := HARMLESS[column]) is NOW else value for column in columns]
    changes = ", ".join(f"{column} = ?" for column in columns)
    connection.execute(f"UPDATE taskmill_task SET {changes} WHERE id = ?", (*values, id))  # noqa: S608 - our own names


def _reasons(found: Sequence[Damage]) -> str:
    return "; ".join(f"column {damage.column} holds {damage.value}" for damage in found)


def _damaged_in_batches(
    connection: Connection, table: str, columns: Sequence[Column], key: Sequence[str] = ("id",)
) -> Iterator[Damage]:
    """Examine a large table. ``key`` is its primary key, of which the first column identifies a damaged row."""
    names = ", ".join(column.name for column in columns)
    keys, marks = ", ".join(key), ", ".join("?" * len(key))
    shape = msgspec.defstruct("Row", [(column.name, column.holds) for column in columns], array_like=True)
    words = [place for place, column in enumerate(columns, start=len(key)) if column.name not in CONTENT]
    texts = [place for place, column in enumerate(columns, start=len(key)) if column.name in _DECODED]

    def are_sound(rows: Sequence[Sequence[Any]]) -> bool:
        try:
            msgspec.convert([row[len(key) :] for row in rows], list[shape])  # type: ignore[valid-type]
            # Encoding fails for text that was not valid UTF-8.
            _encode([[row[place] for place in words] for row in rows])
            for row in rows:
                for place in texts:
                    if row[place] is not None:
                        _DECODED[columns[place - len(key)].name](row[place])
        except UNDECODABLE:
            return False
        return True

    after = [-(2**63), *[0] * (len(key) - 1)]
    while True:
        rows = connection.execute(
            f"SELECT {keys}, {names} FROM {table} WHERE ({keys}) > ({marks}) ORDER BY {keys} LIMIT {BATCH}",  # noqa: S608
            after,
        ).fetchall()
        if not are_sound(rows):
            for row in rows:
                yield from _damage_in(table, row[0], columns, row[len(key) :])
        if len(rows) < BATCH:
            return
        after = list(rows[-1][: len(key)])


def _damaged_tags(connection: Connection) -> Iterator[Damage]:
    """Examine the tags in batches. A name may be damaged, so each batch has all tags of its tasks."""
    tags = f"FROM {TAGS} WHERE task_id > ?"
    after = -(2**63)
    while True:
        batch = f"SELECT task_id {tags} ORDER BY task_id LIMIT {BATCH}"
        last = connection.execute(f"SELECT max(task_id) FROM ({batch}) AS batch", (after,)).fetchone()[0]  # noqa: S608
        if last is None:
            return
        rows = connection.execute(f"SELECT task_id, name, value {tags} AND task_id <= ?", (after, last))
        for id, *values in rows.fetchall():
            yield from _damage_in(TAGS, id, EXAMINED[TAGS], values)
        after = last


def _damaged_rows(connection: Connection, table: str, key: str, columns: Sequence[Column]) -> Iterator[Damage]:
    names = ", ".join(column.name for column in columns)
    for id, *values in connection.execute(f"SELECT {key}, {names} FROM {table}").fetchall():  # noqa: S608 - as above
        yield from _damage_in(table, id, columns, values)


def _damage_in(
    table: str, id: Any, columns: Sequence[Column], values: Sequence[Any], *, contents: bool = False
) -> Iterator[Damage]:
    for column, value in zip(columns, values, strict=True):
        try:
            msgspec.convert(value, column.holds)
            if contents or column.name not in CONTENT:
                _encode(value)
            if value is not None and column.name in _DECODED:
                _DECODED[column.name](value)
        except UNDECODABLE:
            yield Damage(table, id, column.name, _shown(value))


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
