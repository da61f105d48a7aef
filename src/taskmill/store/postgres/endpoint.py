"""A PostgreSQL database as the source or target of a move.

The seal of a store that is being moved is a trigger on each table, which calls a function that refuses writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql as compose
from psycopg.errors import DataError, IntegrityError, ProgramLimitExceeded
from psycopg.pq import TransactionStatus

from taskmill.errors import AlreadyRunning, ConfigError
from taskmill.store.moving.endpoint import Endpoint, Row, Unstorable, selection
from taskmill.store.moving.marks import SEALED
from taskmill.store.moving.tables import COUNTS, OPEN, Shape, Table
from taskmill.store.postgres import lease
from taskmill.store.postgres.connection import SEALED_STATE, connect, parsed_address, shown, translated
from taskmill.store.postgres.migrate import NEWEST_VERSION, migrate
from taskmill.store.postgres.recovering import rescue
from taskmill.store.postgres.session import Session
from taskmill.store.sql.load import recount

_SETTINGS = {"jit": "off", "lock_timeout": "'60s'", "statement_timeout": "0"}

# Held by a process that moves to or from these tables. The number is `task` in ASCII, followed by the oid of a table.
_LOCK = "(1952541547::bigint << 32) | 'taskmill_setting'::regclass::oid::bigint"

_IDENTITY = "SELECT 'taskmill_task'::regclass::oid::bigint, current_database(), pg_postmaster_start_time()::text"

_COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, NULL),
    array_position(i.indkey::int2[], a.attnum)
FROM pg_class c
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE c.relkind = 'r' AND starts_with(c.relname, 'taskmill_')
    AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'taskmill_task'::regclass)
ORDER BY c.relname, a.attnum
"""

# Task ids come from this separate sequence; other tables have a serial sequence of their own.
_SEQUENCE = {"taskmill_task": "taskmill_task_id"}

_REFUSE = """
CREATE OR REPLACE FUNCTION taskmill_sealed() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF current_setting('taskmill.mover', true) IS DISTINCT FROM 'at work' THEN
        RAISE EXCEPTION USING ERRCODE = {state}, MESSAGE = {words};
    END IF;
    RETURN NULL;
END $body$
"""


class PostgresEndpoint(Endpoint):
    """The tables of one schema; a move holds a lock that excludes other moves."""

    def __init__(self, address: str, *, must_exist: bool) -> None:
        self.name = shown(address)
        if not parsed_address(address).notifications:
            raise ConfigError(f"{self.name}: a move cannot use a pooler; give the address of the server itself")
        self._closing = contextlib.ExitStack()
        try:
            with self._translating():
                self._open(address, must_exist=must_exist)
        except BaseException:
            self._closing.close()
            raise

    def _open(self, address: str, *, must_exist: bool) -> None:
        # Batches need not be durable: the server forgets a lost batch and its progress together. The transactions that
        # end a move ask for durability themselves.
        self._connection = self._closing.enter_context(connect(address, _SETTINGS, "process"))
        if must_exist:
            self.check_schema(NEWEST_VERSION)
        else:
            migrate(self._connection, self.name)
        self._reading = self._closing.enter_context(connect(address, _SETTINGS))
        self._shapes = self._read_shapes()
        self._sealed_with: str | None = None

    def take(self) -> None:
        if not self.query(f"SELECT pg_try_advisory_lock({_LOCK})")[0][0]:
            raise AlreadyRunning(f"{self.name} is being moved by another process; wait until it has ended")

    def _how_to_upgrade(self) -> str:
        # Not with `taskmill status`: the commands never create or change tables on a server.
        return "open it with a scheduler whose user may create tables to upgrade it"

    def _has_tables(self) -> bool:
        return bool(self.query("SELECT to_regclass('taskmill_schema') IS NOT NULL")[0][0])

    def close(self) -> None:
        self._closing.close()

    def identity(self) -> object:
        return self.query(_IDENTITY)[0]

    # Reading

    def shapes(self) -> Mapping[str, Shape]:
        return self._shapes

    def _read_shapes(self) -> Mapping[str, Shape]:
        columns: dict[str, dict[str, str]] = {}
        keys: dict[str, list[tuple[int, str]]] = {}
        for table, column, type, position in self.query(_COLUMNS):
            known = columns.setdefault(table, {})
            if column is not None:
                known[column] = type
                if position is not None:
                    keys.setdefault(table, []).append((position, column))
        return {table: Shape(found, [c for _, c in sorted(keys.get(table, []))]) for table, found in columns.items()}

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        with self._translating():
            cursor = self._connection.execute(sql.replace("?", "%s").encode(), parameters or None)
            return list(cursor.fetchall()) if cursor.description is not None else []

    def stream(self, table: Table, after: Sequence[Any] | None = None, *, ordered: bool) -> Generator[Row, None, None]:
        types = self._shapes[table.name].columns
        flags = {column: f"{column}::int" for column, type in types.items() if type == "boolean"}
        given = None if after is None else ", ".join(compose.Literal(v).as_string(self._reading) for v in after)
        inner = selection(table, flags, given, ordered=ordered)
        read = {**types, **dict.fromkeys(flags, "integer"), **dict.fromkeys(table.sums, "bigint")}
        with (
            self._translating(),
            self._reading.cursor() as cursor,
            cursor.copy(f"COPY ({inner}) TO STDOUT (FORMAT BINARY)".encode()) as copy,
        ):
            copy.set_types([_catalog_name(read[column]) for column in table.columns])
            yield from copy.rows()

    def last_ids(self, tables: Sequence[Table]) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for table, sequence in self._sequences(tables).items():
            last = self.query(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}")  # noqa: S608
            found[table] = last[0][0]
        return found

    def _sequences(self, tables: Sequence[Table]) -> dict[str, str]:
        found: dict[str, str] = {}
        for table in tables:
            (own,) = self.query("SELECT pg_get_serial_sequence(?, ?)", (table.name, table.key[0]))[0]
            if sequence := _SEQUENCE.get(table.name, own):
                found[table.name] = sequence
        return found

    # Writing

    @contextlib.contextmanager
    def writing(self, seal: str | None, *, durable: bool = False) -> Generator[None, None, None]:
        with self._translating():
            self.query("BEGIN")
            try:
                self.query("SET LOCAL taskmill.mover = 'at work'")
                self.query("SET LOCAL taskmill.node = ''")
                if durable:
                    self.query("SET LOCAL synchronous_commit = on")
                yield
                self._change_seal(seal)
                self.query("COMMIT")
            except BaseException:
                if self._connection.info.transaction_status != TransactionStatus.UNKNOWN:
                    self.query("ROLLBACK")
                raise
            self._sealed_with = seal

    def _change_seal(self, words: str | None) -> None:
        if words is not None and words == self._sealed_with:
            return
        # DROP and CREATE TRIGGER wait for transactions that are writing; later ones find the seal.
        self.query("SET LOCAL client_min_messages = warning")
        self.query("DROP FUNCTION IF EXISTS taskmill_sealed() CASCADE")
        if words is None:
            return
        said = compose.SQL(_REFUSE).format(
            state=compose.Literal(SEALED_STATE), words=compose.Literal(f"{SEALED}{words}")
        )
        self._connection.execute(said)
        for table in sorted(self._shapes.keys() - OPEN):
            self.query(
                f"CREATE TRIGGER taskmill_sealed BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table}"
                " FOR EACH STATEMENT EXECUTE FUNCTION taskmill_sealed()"
            )

    def write(self, table: Table, rows: Sequence[Row]) -> None:
        types = self._shapes[table.name].columns
        columns = [*table.columns, *table.constants]
        constants = tuple(table.constants.values())
        try:
            with self._connection.cursor() as cursor:
                begin = f"COPY {table.name} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
                with cursor.copy(begin.encode()) as copy:
                    copy.set_types([_catalog_name(types[column]) for column in columns])
                    for row in rows:
                        copy.write_row((*row, *constants))
        except (DataError, IntegrityError, ProgramLimitExceeded, UnicodeEncodeError) as wrong:
            raise Unstorable(str(wrong).strip().partition("\n")[0]) from wrong

    def clear(self, tables: Sequence[Table]) -> None:
        self.query(f"TRUNCATE {', '.join([*(table.name for table in tables), COUNTS])}")

    def raise_ids(self, last: Mapping[str, int]) -> None:
        known = self._sequences([Table(name, (), ("id",)) for name in last])
        for name, sequence in known.items():
            if last[name] > 0:
                self.query(
                    f"SELECT setval(?, greatest(?, CASE WHEN is_called THEN last_value ELSE 0 END)) FROM {sequence}",  # noqa: S608
                    (sequence, last[name]),
                )

    def get_ready(self, tables: Sequence[Table]) -> None:
        recount(Session(self._connection))
        self.query(f"ANALYZE {', '.join(table.name for table in tables)}")

    # Other nodes

    def check_unused(self) -> None:
        if self._connection.info.transaction_status == TransactionStatus.INTRANS:
            # A node registers itself under this lock before it dispatches, so none can appear after the check.
            self.query("LOCK TABLE taskmill_writing IN EXCLUSIVE MODE")
        alive = Session(self._connection).execute("names_of_nodes", (lease.LEASE,)).fetchone()[0]
        if alive is not None:
            raise AlreadyRunning(
                f"{self.name} is dispatched by {alive}; stop it, then run the same command again "
                f"(a node that died counts as alive for {lease.LEASE:.0f} s)"
            )

    def settle(self, now: int) -> None:
        self.check_unused()
        session = Session(self._connection)
        session.is_alone = True
        rescue(session, lease.LEASE, now)
        self.query("SELECT nextval('taskmill_change')")

    @contextlib.contextmanager
    def _translating(self) -> Generator[None, None, None]:
        try:
            yield
        except psycopg.Error as wrong:
            raise translated(wrong, self.name) from wrong


def _catalog_name(type: str) -> str:
    return {"bigint": "int8", "integer": "int4", "smallint": "int2", "boolean": "bool"}.get(type, type)
