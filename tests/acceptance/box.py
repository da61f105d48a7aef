"""A domain for wrong calls, wrong values, and a check that a call is refused and stores nothing."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskmill import Domain
from taskmill.store.opening import is_postgres
from tests.acceptance.sqlite_library import sqlite3
from tests.both_engines import name_of

NAN = float("nan")
MIB = 1024 * 1024
SURROGATE = "a\ud800b"
NUL = "a\0b"
BAD_DURATIONS = [NAN, -1, -0.001, timedelta(seconds=-1), True, "10", b"1", math.inf, 10**400, timedelta.max]

box = Domain("box")


@dataclass
class Size:
    width: int
    height: int


@dataclass
class Parcel:
    label: str
    size: Size


@box.task
async def put(path: str, count: int = 1) -> int:
    return len(path) * count


@box.task
async def weigh(grams: float) -> float:
    return grams


@box.task
async def weigh_all(grams: list[float]) -> int:
    return len(grams)


@box.task
async def weigh_maybe(grams: float | None = None) -> bool:
    return grams is None


@box.task
async def ship(parcel: Parcel) -> str:
    return parcel.label


@box.task
async def anything(value):  # type: ignore[no-untyped-def]
    return value


@box.task
async def explode(path: str) -> None:
    raise RuntimeError(path)


def untyped(task: Any) -> Any:
    """Return the task without its types, for calls that are wrong on purpose and that type checkers would reject."""
    return task


def shown(value: object) -> str:
    """Return a name for a value, to be used in the name of a test."""
    return repr(value)[:40].encode("ascii", "backslashreplace").decode().replace("\0", "0")


def dump(path: Path) -> dict[str, list[Any]]:
    """Return every row of every table of taskmill."""
    name = name_of(path)
    return _dump_schema(name) if is_postgres(name) else _dump_file(name)


def _dump_file(name: str) -> dict[str, list[Any]]:
    with contextlib.closing(sqlite3.connect(name)) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'taskmill!_%' ESCAPE '!'"
        ).fetchall()
        return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for (name,) in tables}


def _dump_schema(address: str) -> dict[str, list[Any]]:
    import psycopg
    from psycopg import sql

    with psycopg.connect(address) as connection:
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
            # Leave out the rows that nodes write about themselves: heartbeats, and how far they have written.
            " AND relname NOT IN ('taskmill_commit', 'taskmill_node', 'taskmill_writing')"
        ).fetchall()
        rows = sql.SQL("SELECT * FROM {} ORDER BY 1, 2")
        return {name: connection.execute(rows.format(sql.Identifier(name))).fetchall() for (name,) in tables}


@contextlib.contextmanager
def unchanged(path: Path) -> Iterator[None]:
    before = dump(path)
    assert "taskmill_task" in before
    yield
    assert dump(path) == before


async def refused(
    path: Path, call: Callable[[], Coroutine[Any, Any, Any]], error: type[Exception], names: str
) -> Exception:
    """Check that the call raises exactly this class, names ``names``, and stores nothing."""
    with unchanged(path), pytest.raises(error) as caught:
        await call()
    assert type(caught.value) is error
    assert names in str(caught.value)
    return caught.value
