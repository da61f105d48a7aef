"""The PostgreSQL implementation of the Store protocol. Writer, reader and heartbeats have a connection each."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import msgspec
import psycopg

from taskmill.core.logs import logger
from taskmill.core.ports import Clock, DispatchRight
from taskmill.errors import SubmissionError
from taskmill.model.commit import Changes, Recovery
from taskmill.model.machine import Machine
from taskmill.model.settings import PruneRule
from taskmill.model.submission import Stored
from taskmill.model.task import NewTask
from taskmill.model.turn import Turn, TurnResult
from taskmill.policy.inbox import Answer
from taskmill.store.postgres import heartbeat
from taskmill.store.postgres.callers import CallersAsyncSession, CallersSession, is_async
from taskmill.store.postgres.connection import (
    MIGRATING,
    MIGRATING_PATIENCE,
    READING,
    WRITING,
    Durability,
    RawConnection,
    connect,
    translated,
)
from taskmill.store.postgres.heartbeat import Heartbeat, NodeRight
from taskmill.store.postgres.migrate import migrate
from taskmill.store.postgres.reading import READER_PATIENCE, PostgresReads, check_server_not_sealed
from taskmill.store.postgres.recovering import rescue
from taskmill.store.postgres.session import Session
from taskmill.store.postgres.writer import Writer
from taskmill.store.sql import inbox, ledger
from taskmill.store.sql.connection import Connection, encoded
from taskmill.store.sql.store_thread import StoreThread
from taskmill.store.sql.write_side import WriteSide

T = TypeVar("T")

FORGET_MARKS_EVERY = 3600.0
"""Seconds between two searches for the marks of writers that are gone; a mark is kept for a day."""

_decode_names = msgspec.json.Decoder(list[str]).decode

# Identifies the tables and the server that a connection sees.
_PLACE = "SELECT to_regclass('taskmill_task')::oid::bigint, current_database(), pg_postmaster_start_time()"


class PostgresStore(WriteSide, PostgresReads):
    """A store in the tables of one database schema, which any number of stores may have open."""

    is_shared = True
    news: asyncio.Event | None

    def __init__(self, address: str, durability: Durability, clock: Clock) -> None:
        super().__init__()
        PostgresReads.__init__(self, address, clock)
        self._durability: Durability = durability
        self._types: set[str] = set()
        """The task types that this node can run."""
        self._host = socket.gethostname()
        self.machine_name = f"machine {self._host}"
        self._seen: str | None = None
        """The last reading of this machine, encoded; None before the first."""
        self._right: NodeRight | None = None
        """The dispatch right that was granted last."""
        self._forget_marks_at = float("-inf")
        """When the marks of writers that are gone are deleted next, on the monotonic clock."""
        self._slots_told: int | None = None
        """The number of slots that this node has stored for the other nodes."""

    # Opening and closing

    async def open(self) -> None:
        self._has_opened = False
        self._reader = StoreThread("taskmill-reader", self._clock)
        self._requests = self._writer = Writer(self._connect_to_write, self.name, self._clock)
        self._writer.is_lazy = self._durability == "process"
        self.news = news = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_loop(call: Callable[[], None]) -> None:
            # The loop may have been closed in the meantime.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(call)

        self._heartbeat = Heartbeat(
            # Heartbeats need not survive a crash of the server: after a restart every node gets a whole lease.
            lambda: connect(self._address, WRITING, "process", heartbeat.ANSWER),
            lambda: self._writer.changes,
            heard=lambda: on_loop(news.set),
            cut_off=lambda: on_loop(self.watch_cut_off),
            others=self._sessions,
            listens=self._where.notifications,
        )
        self._reader.begin()
        try:
            self._writer.begin()
            await self._reader.run(self._open)
        except BaseException:
            # If this coroutine was cancelled, the thread may still have opened the store.
            await self._reader.run(self._undo_open)
            await self._reader.close()
            await self._writer.close()
            raise
        self._writer.told = self._heartbeat.tell

    def _open(self) -> None:
        try:
            with connect(self._address, MIGRATING, patience=MIGRATING_PATIENCE) as connection:
                check_server_not_sealed(connection, self.name)
                migrate(connection, self.name, create=self._where.create)
            self._writer.open()
            with contextlib.ExitStack() as undoing:
                self._reading = Session(undoing.enter_context(self._connect_to_read()))
                self._place = self._reading.execute(_PLACE).fetchone()
                self._heartbeat.open()
                undoing.pop_all()
        except (psycopg.Error, OSError) as wrong:
            raise translated(wrong, self.name) from wrong
        self._has_opened = True

    def _undo_open(self) -> None:
        if self._has_opened:
            self._heartbeat.close()
            self._reading.raw.close()

    def _connect_to_write(self) -> RawConnection:
        return connect(self._address, WRITING, self._durability)

    def _sessions(self) -> list[Session]:
        """Return the sessions of reader and writer, for which the heartbeat thread checks that the server answers."""
        writing = self._writer.session
        return [self._reading] if writing is None else [self._reading, writing]

    async def close(self) -> None:
        await self._writer.close()
        await self._reader.run(self._heartbeat.close)
        await self._reader.close()
        self._reading.raw.close()

    @property
    def restarts(self) -> int:
        """The number of transactions that were rolled back and started again with the exclusive lock."""
        return self._writer.restarts

    # Nodes

    async def publish_types(self, types: Mapping[str, str]) -> None:
        self._types |= types.keys()
        # Usually every type is published already; and a role that only reads may not write.
        if types.items() - (await self.published_types()).items():
            await super().publish_types(types)

    async def acquire_dispatch(self) -> DispatchRight:
        self._right = NodeRight(self._heartbeat, await self._enter())
        return self._right

    async def _enter(self) -> int:
        given = self.node_name, encoded(sorted(self._types)), self._seen
        left = list(self._heartbeat.left)

        def enter(connection: Connection) -> int:
            connection.execute("forget_marks")
            connection.execute("fold_tally")
            connection.execute("fold_load")
            for node in left:
                # Its row would count as another node with slots of its own, until the heartbeat removes it.
                connection.execute("leave_node", (node,))
            number: int = connection.execute("enter_node", given).fetchone()[0]
            return number

        node = self._writer.node = await self._write(enter)
        self._slots_told = None
        self._heartbeat.enter(node)
        return node

    async def prune(self, rules: Sequence[PruneRule], now: int, limit: int, *, durable: bool = True) -> int:
        if self._clock.monotonic() >= self._forget_marks_at:
            # Nodes may run for months, and programs that only submit come and go, each leaving a mark.
            self._forget_marks_at = self._clock.monotonic() + FORGET_MARKS_EVERY
            await self._write(lambda connection: connection.execute("forget_marks").rowcount, moves=False)
        return await super().prune(rules, now, limit, durable=durable)

    async def note_machine(self, seen: Machine) -> None:
        await super().note_machine(seen)
        self._seen = encoded(seen)

    def _own_node(self) -> int | None:
        return self._writer.node

    def is_cut_off(self) -> bool:
        return self._heartbeat.is_in_doubt

    def dispatcher_is_alive(self) -> bool:
        return self._heartbeat.is_dispatched

    async def foreign_changes(self) -> Changes | None:
        return self._heartbeat.take_changed()

    def note_beginnings(self, begun: Sequence[tuple[int, int, int]]) -> None:
        """Record nothing: only the server outlives this machine, and its round trips would cost too much."""

    async def recover(self, now: int) -> Recovery:
        """Return the tasks of dead nodes to the queue."""
        recovery, dead = await self._write(lambda connection: self._rescue(connection, now), rows=ledger.BITE)
        _tell_of(dead)
        return recovery

    def _rescue(self, connection: Connection, now: int) -> tuple[Recovery, list[str]]:
        return rescue(connection, self._heartbeat.longest_silence, now)

    async def turn(self, turn: Turn) -> TurnResult:
        if self._heartbeat.is_lost:
            # Other nodes declared this one dead and took its tasks. Register again under a new id.
            node = await self._enter()
            if self._right is not None:
                # The new node has to leave when the dispatcher stops.
                self._right.node = node
        if not (turn.look.survey and self._heartbeat.has_dead_nodes):
            has_new_slots = turn.look.slots != self._slots_told
            if turn.writes() or has_new_slots:
                looked = await self._turn(turn, moves=has_new_slots)
                self._slots_told = turn.look.slots
                return looked
            # Send no notification for a turn that only reads, or idle nodes would wake each other forever.
            return await self._writer.commit_turn(partial(self._commit_turn, turn), rows=0)
        dead: list[str] = []

        def rescue_first(connection: Connection) -> TurnResult:
            recovery, dead[:] = self._rescue(connection, turn.now)
            result = self._commit_turn(turn, connection)
            result.commit.put_first(recovery.commit)
            return result

        result = await self._write_turn(rescue_first, rows=ledger.BITE)
        self._heartbeat.has_dead_nodes = False
        _tell_of(dead)
        return result

    # Submitting inside a transaction of the caller's own

    def add_through(self, connection: object, tasks: Sequence[NewTask]) -> list[Stored]:
        """Store tasks inside the caller's own transaction; they exist once the caller commits."""
        if not isinstance(connection, psycopg.Connection):
            raise self._wrong_kind(connection)
        try:
            session = CallersSession(cast("RawConnection", connection))
            self._check_same_place(session, connection.closed)
            # A savepoint: if our statements fail, the caller's transaction can continue without them.
            with connection.transaction():
                answer = self._insert(session, tasks)
        except psycopg.Error as wrong:
            raise translated(wrong, self.name) from wrong
        return self._stored(*answer)

    async def add_within(self, connection: object, tasks: Sequence[NewTask]) -> list[Stored]:
        if not is_async(connection):
            return self.add_through(connection, tasks)
        session = CallersAsyncSession(connection)
        try:
            # Several asyncio tasks may share a connection, but savepoints must end in the reverse order of their begin.
            async with _SAVEPOINTS.setdefault(connection, asyncio.Lock()):
                await session.in_thread(lambda: self._check_same_place(session, connection.closed))
                async with connection.transaction():
                    answer = await session.in_thread(lambda: self._insert(session, tasks))
        except psycopg.Error as wrong:
            raise translated(wrong, self.name) from wrong
        return self._stored(*answer)

    def _insert(self, session: Connection, tasks: Sequence[NewTask]) -> tuple[Answer, Changes, str | None]:
        (answer,), commit = inbox.insert(session, [tasks], self._clock.now_ms())
        number = session.execute("SELECT pg_current_xact_id_if_assigned()::text").fetchone()[0]
        return answer, commit.changes, number

    def _stored(self, answer: Answer, changes: Changes, transaction: str | None) -> list[Stored]:
        if isinstance(answer, SubmissionError):
            raise answer
        if transaction is not None:
            self._heartbeat.watch(transaction, changes)
        return answer

    def _wrong_kind(self, connection: object) -> SubmissionError:
        if is_async(connection):
            return SubmissionError(
                "a psycopg.AsyncConnection belongs to its event loop; give a psycopg.Connection here"
            )
        return SubmissionError(
            f"connection must be a psycopg.Connection or a psycopg.AsyncConnection to {self.name}, "
            f"not {type(connection).__module__}.{type(connection).__name__}"
        )

    def _check_same_place(self, session: Connection, is_closed: bool) -> None:
        if is_closed:
            raise SubmissionError("connection is closed")
        place = session.execute(_PLACE).fetchone()
        if place == self._place:
            return
        # The start time differs if the server was restarted, so read it again before refusing.
        with connect(self._address, READING, patience=READER_PATIENCE) as connection:
            self._place = Session(connection).execute(_PLACE).fetchone()
        if place != self._place:
            raise SubmissionError(
                f"connection must see the tables of {self.name}, but leads to another server, database or schema"
            )

    async def facts(self, *, integrity: bool = False) -> dict[str, Any]:
        return {**await super().facts(integrity=integrity), "durability": self._durability}


_SAVEPOINTS: WeakKeyDictionary[psycopg.AsyncConnection[Any], asyncio.Lock] = WeakKeyDictionary()
"""Held by the submission that has a savepoint, for each connection of a caller."""


def _tell_of(dead: Sequence[str]) -> None:
    for name in dead:
        logger.warning("node %s has died; its tasks return to the queue", name)
