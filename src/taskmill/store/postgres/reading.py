"""Reading a PostgreSQL database: the reads of an open store, and a database that is opened for reading only."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import psycopg

from taskmill.core.ports import Clock
from taskmill.errors import StoreError
from taskmill.model.cluster import NodeAtWork
from taskmill.model.machine import UNSEEN, NodeMachine
from taskmill.model.records import TaskRecord
from taskmill.store.moving.marks import READ as READ_MARKS
from taskmill.store.moving.marks import check_not_sealed
from taskmill.store.postgres import health, lease
from taskmill.store.postgres.connection import (
    READING,
    RawConnection,
    connect,
    is_lost,
    is_silence,
    parsed_address,
    shown,
    translated,
)
from taskmill.store.postgres.migrate import check_schema
from taskmill.store.postgres.session import Session
from taskmill.store.sql.connection import Connection, one
from taskmill.store.sql.machine import readable_machine
from taskmill.store.sql.read_side import CallingThread, ReadingThread, ReadSide, reading_thread
from taskmill.store.sql.rows import View

T = TypeVar("T")

READER_PATIENCE = 10.0
"""Longest time, in seconds, to retry a read after the server was lost. A retry without an answer is the last."""
NODES_EVERY = 1.0
"""Seconds after which a reader asks again whether any node is alive."""

_decode_nodes = msgspec.json.Decoder(list[NodeAtWork]).decode
_decode_machines = msgspec.json.Decoder(list[tuple[int, str | None]]).decode


class PostgresReads(ReadSide):
    """The reads of a database, in a thread and on a connection of their own."""

    is_cluster = True
    _reader: ReadingThread
    _reading: Session

    def __init__(self, address: str, clock: Clock) -> None:
        self._address = address
        self._where = parsed_address(address)
        self.name = shown(address)
        self._clock = clock

    def _connect_to_read(self) -> RawConnection:
        return connect(self._address, READING)

    async def _read(self, request: Callable[[Connection], T]) -> T:
        def read() -> T:
            try:
                return self._ask_reader(lambda connection: self._decoded(request, connection))
            except psycopg.Error as wrong:
                raise translated(wrong, self.name) from wrong

        return await self._reader.run(read)

    def _ask_reader(self, request: Callable[[Connection], T]) -> T:
        """Run a request that reads, repeating it if the server was restarted or the connection was lost."""
        give_up_at: float | None = None
        pause = 0.01
        while True:
            try:
                if self._reading.raw.closed:
                    self._reading = Session(self._connect_to_read())
                with self._reading.reading():
                    return request(self._reading)
            except (StoreError, psycopg.Error) as wrong:
                if not is_lost(wrong, self._reading.raw):
                    raise
                self._reading.raw.close()
                if give_up_at is None:
                    give_up_at = time.monotonic() + READER_PATIENCE
                elif is_silence(wrong) or time.monotonic() > give_up_at:
                    raise
            time.sleep(pause)
            pause = min(pause * 2, 0.5)

    async def machines(self) -> list[NodeMachine]:
        def read(connection: Connection) -> list[NodeMachine]:
            found = _decode_machines(one(connection, "machines", lease.LEASE))
            own = self._own_node()
            return [NodeMachine(node, readable_machine(seen) or UNSEEN, node == own) for node, seen in found]

        return await self._read(read)

    def _nodes(self, connection: Connection, running: Sequence[TaskRecord], view: View) -> list[NodeAtWork]:  # noqa: ARG002
        own = self._own_node()
        found = _decode_nodes(one(connection, "nodes_at_work", lease.LEASE))
        return [msgspec.structs.replace(node, is_here=node.id == own) for node in found]

    async def facts(self, *, integrity: bool = False) -> dict[str, Any]:  # noqa: ARG002 - the server checks its pages
        found = await self._read(health.examine)
        return {
            "store": self.name,
            "kind": "postgresql",
            "dispatcher": ", ".join(found["nodes"]["alive"]) or None,
            **found,
        }


class PostgresReader(PostgresReads):
    """A database that is open for reading only: the server refuses everything else on this connection."""

    _nodes_asked_at = float("-inf")
    _any_alive = False

    def __init__(self, address: str, clock: Clock, *, in_thread: bool) -> None:
        super().__init__(address, clock)
        self._in_thread = in_thread

    async def open(self) -> None:
        self._reader = reading_thread(self._clock) if self._in_thread else CallingThread()
        try:
            self._reading = await self._reader.run(self._opened_session)
        except BaseException:
            await self._reader.close()
            raise

    def _opened_session(self) -> Session:
        try:
            connection = self._connect_to_read()
            try:
                check_server_not_sealed(connection, self.name)
                check_schema(connection, self.name)
            except BaseException:
                connection.close()
                raise
        except (psycopg.Error, OSError) as wrong:
            raise translated(wrong, self.name) from wrong
        return Session(connection)

    async def close(self) -> None:
        await self._reader.close()
        self._reading.raw.close()

    def _ask_reader(self, request: Callable[[Connection], T]) -> T:
        def informed(connection: Connection) -> T:
            if time.monotonic() > self._nodes_asked_at + NODES_EVERY:
                self._any_alive = one(connection, "any_node_is_alive", lease.LEASE)
                self._nodes_asked_at = time.monotonic()
            return request(connection)

        return super()._ask_reader(informed)

    def _own_node(self) -> int | None:
        return None

    def dispatcher_is_alive(self) -> bool:
        """True if a node was alive when the store was last read."""
        return self._any_alive


def check_server_not_sealed(connection: RawConnection, name: str) -> None:
    """Raise ``StoreMoved`` if the store is sealed by a move.

    Called before the migration, so that a sealed store with a newer schema is reported as moved, not as too new.
    """
    found = connection.execute("SELECT to_regclass('taskmill_setting') IS NOT NULL").fetchone()
    if found is not None and found[0]:
        check_not_sealed(connection.execute(READ_MARKS.encode()).fetchall(), name)
