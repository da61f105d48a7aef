"""Schemas with taskmill's tables, handed out empty and reused: creating one takes longer than most tests.

Tests that ask for ``postgres_store``, a schema without tables, cover how tables are created and migrated.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from urllib.parse import quote

import psycopg
from psycopg import sql

from taskmill.store.postgres.migrate import migrate
from tests.postgres.warm import WarmSessions

PREFIX = "taskmill_engine_"
"""The beginning of the names of these schemas."""
USED_UP = 2000
"""Rows after which a schema is dropped: dead rows slow it down, and all tests should find the same speed."""


def drop_schema(connection: psycopg.Connection[tuple[object, ...]], schema: str) -> None:
    """Drop a schema that may still be in use: retry if another session holds one table and waits for the next."""
    for _ in range(10):
        with contextlib.suppress(psycopg.errors.DeadlockDetected):
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
            break


class Schemas:
    """The schemas of one process of the run."""

    def __init__(self, server: str, warm: WarmSessions) -> None:
        self._server = server
        self._warm = warm
        self._numbers = itertools.count(1)
        self._ready: list[str] = []
        self._filling: dict[tuple[str, str], bytes] = {}
        """The statements that fill a schema with the rows of another; they are put together once."""
        self._connection = psycopg.connect(server, autocommit=True)
        self._connection.execute("SET client_min_messages = warning")
        self._pristine = self._made()
        named = "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = %s ORDER BY oid"
        self.tables = [row[0] for row in self._connection.execute(named, (self._pristine, "r"))]
        self._sequences = [row[0] for row in self._connection.execute(named, (self._pristine, "S"))]

    def address(self, schema: str) -> str:
        glue = "&" if "?" in self._server else "?"
        return f"{self._server}{glue}options={quote(f'-csearch_path={schema}')}"

    def take(self) -> str:
        """Return the name of an unused schema."""
        return self._ready.pop() if self._ready else self._made()

    def take_copy(self, schema: str) -> str:
        """Return the name of another schema with the same rows."""
        copy = self.take()
        self._fill(copy, schema)
        return copy

    def forget_nodes(self, schema: str) -> None:
        """Delete all nodes, as if they had died and their leases had expired."""
        self._connection.execute(sql.SQL("DELETE FROM {}.taskmill_node").format(sql.Identifier(schema)))

    def give_back(self, schema: str) -> None:
        """Take back a schema that is no longer used."""
        rows = sql.SQL("SELECT (SELECT count(*) FROM {0}.taskmill_node), (SELECT last_value FROM {0}.taskmill_task_id)")
        row = self._connection.execute(rows.format(sql.Identifier(schema))).fetchone()
        # A node that has not left may still be running, and would disturb the next test.
        if row is None or row[0] or row[1] > USED_UP:
            self._drop(schema)
        else:
            self._fill(schema, self._pristine)
            self._ready.append(schema)

    def close(self) -> None:
        for schema in (self._pristine, *self._ready):
            self._drop(schema)
        self._connection.close()

    def _drop(self, schema: str) -> None:
        self._warm.end(self.address(schema))
        drop_schema(self._connection, schema)

    def _made(self) -> str:
        schema = f"{PREFIX}{os.getpid()}_{next(self._numbers)}"
        self._connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        with psycopg.connect(self.address(schema), autocommit=True) as connection:
            connection.execute("SET client_min_messages = warning")
            migrate(connection, schema)
        return schema

    def _fill(self, schema: str, source: str) -> None:
        """Replace its rows by those of the other schema, in one round trip to the server."""
        if (schema, source) not in self._filling:
            self._filling[schema, source] = self._script(schema, source)
        self._connection.execute(self._filling[schema, source])

    def _script(self, schema: str, source: str) -> bytes:
        words = {"schema": sql.Identifier(schema), "source": sql.Identifier(source)}
        rows = sql.SQL(
            "DELETE FROM {schema}.{name};"
            "INSERT INTO {schema}.{name} OVERRIDING SYSTEM VALUE SELECT * FROM {source}.{name};"
        )
        place = sql.SQL("SELECT setval({place}, last_value, is_called) FROM {source}.{name};")
        steps = [rows.format(name=sql.Identifier(table), **words) for table in self.tables]
        for sequence in self._sequences:
            place_of = sql.Literal(f"{schema}.{sequence}")
            steps.append(place.format(name=sql.Identifier(sequence), place=place_of, **words))
        # The other schema may be in use.
        all_at_once = sql.SQL("BEGIN ISOLATION LEVEL REPEATABLE READ; {} COMMIT")
        return all_at_once.format(sql.SQL("").join(steps)).as_bytes(self._connection)
