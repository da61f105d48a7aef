"""Direct access to the rows of a store, around taskmill, on either engine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import pytest

from taskmill.store.opening import is_postgres
from tests.acceptance.sqlite_library import sqlite3
from tests.both_engines import name_of


class Cursor(Protocol):
    """The methods that the cursors of both libraries have."""

    rowcount: int

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Raw(Protocol):
    def execute(self, statement: str, values: Sequence[object] = ()) -> Cursor: ...


@contextlib.contextmanager
def raw(store: str | Path) -> Iterator[Raw]:
    """Yield a transaction. Statements have question marks for values, also on PostgreSQL."""
    name = name_of(Path(store))
    if not is_postgres(name):
        with contextlib.closing(sqlite3.connect(name)) as connection, connection:
            yield cast("Raw", connection)
        return
    import psycopg

    with psycopg.connect(name) as session:
        yield _Asking(session)


class _Asking:
    def __init__(self, session: Any) -> None:
        self._session = session

    def execute(self, statement: str, values: Sequence[object] = ()) -> Cursor:
        for value in values:
            if isinstance(value, bytes):
                pytest.skip("PostgreSQL has no texts that are not text")
        return cast("Cursor", self._session.execute(statement.replace("?", "%s"), values))


@contextlib.contextmanager
def refusing(store: str | Path, verb: str, table: str) -> Iterator[None]:
    """Make the store refuse one kind of statement on a table."""
    if is_postgres(name_of(Path(store))):
        begin = [
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'full'; END $$",
            f"CREATE TRIGGER no BEFORE {verb} ON {table} FOR EACH ROW EXECUTE FUNCTION no()",
        ]
        end = [f"DROP TRIGGER no ON {table}", "DROP FUNCTION no()"]
    else:
        begin = [f"CREATE TRIGGER no BEFORE {verb} ON {table} BEGIN SELECT RAISE(ABORT, 'full'); END"]
        end = ["DROP TRIGGER no"]
    for statements in (begin, end):
        with raw(store) as connection:
            for statement in statements:
                connection.execute(statement)
        if statements is begin:
            yield
