"""The SQLite implementation of the Store protocol: a writer, a reader and the dispatch lock."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from taskmill.core.ports import Clock, DispatchRight
from taskmill.errors import AlreadyRunning, StoreCorrupt, SubmissionError
from taskmill.model.cluster import NodeAtWork
from taskmill.model.commit import ANY_CHANGES, Changes, Recovery
from taskmill.model.controls import Declared
from taskmill.model.records import TaskRecord
from taskmill.model.submission import Stored
from taskmill.model.task import NewTask
from taskmill.store.moving.marks import READ as READ_MARKS
from taskmill.store.moving.marks import check_not_sealed
from taskmill.store.sql import inbox, ledger, recovering
from taskmill.store.sql.connection import Connection as AnyConnection
from taskmill.store.sql.connection import encoded
from taskmill.store.sql.locating import UNDECODABLE
from taskmill.store.sql.rows import View
from taskmill.store.sql.statements import SQL
from taskmill.store.sql.store_thread import StoreThread
from taskmill.store.sql.write_side import WriteSide
from taskmill.store.sqlite.connection import (
    MEMORY,
    Connection,
    DatabaseError,
    Durability,
    connect,
    sqlite_module,
    translated,
    translated_errors,
)
from taskmill.store.sqlite.dispatch_lock import RETRY_AFTER, Beginning, FileLock, NoLock, acquire
from taskmill.store.sqlite.log import LogFile
from taskmill.store.sqlite.migrate import create_database, create_in_memory, migrate
from taskmill.store.sqlite.reading import FileReads, check_file_not_sealed, node_at_work
from taskmill.store.sqlite.session import LostIds, Session
from taskmill.store.sqlite.writer import Writer

T = TypeVar("T")

OWN_PATIENCE = 0.5
"""Seconds of real time that a run waits for a handler of an earlier run of the same store to end."""

MOST_READS_ON_LOOP = 8
"""The most reads in one iteration of the event loop: reading without a pause must not keep it from its other work."""


class SqliteStore(WriteSide, FileReads):
    """A store in one database file, or in memory with ``":memory:"``."""

    def __init__(self, path: str | os.PathLike[str], durability: Durability, clock: Clock) -> None:
        super().__init__()
        self.name = os.fspath(path)
        self._durability: Durability = durability
        self._clock = clock
        self._in_memory = self.name == MEMORY
        self.is_shared = not self._in_memory
        self._lost_ids = LostIds(self.name)
        self._held_right: FileLock | NoLock | None = None
        self._dispatching_since = 0
        self._types: set[str] = set()
        """The task types that this scheduler can run."""
        self._reads_on_loop = 0
        """The reads in the current iteration of the event loop."""

    # Opening and closing

    async def open(self) -> None:
        self.refuse_inherited_file()
        if self._in_memory:
            self._connection = self._reading = self._prepared()
            log = None
        else:
            self._reader = StoreThread("taskmill-reader", self._clock)
            try:
                self._connection, self._reading, log = await self._reader.run(self._connections)
            except BaseException:
                await self._reader.close()
                raise
        self._seen_version = self._forced_version = _data_version(Session(self._connection))
        self._reading_session = Session(self._reading)
        full = self._durability == "full"
        lost_ids = None if self._in_memory else self._lost_ids
        self._requests = self._writer = Writer(
            Session(self._connection, lost_ids), log, self.name, full=full, clock=self._clock
        )
        try:
            self._writer.begin()
        except BaseException:
            await self.close()
            raise
        self._all_open.add(self)

    def _connections(self) -> tuple[Connection, Connection, LogFile]:
        """Open one connection to write, one to read and one to checkpoint the write-ahead log."""
        opened = [self._prepared()]
        try:
            opened.append(connect(self.name, read_only=True))
            opened.append(connect(self.name))
            return opened[0], opened[1], LogFile(self.name, opened[2])
        except BaseException:
            for connection in opened:
                connection.close()
            raise

    def _prepared(self) -> Connection:
        if not self._in_memory:
            create_database(self.name)
        connection = connect(self.name)
        try:
            with translated_errors(self.name):
                if self._in_memory:
                    create_in_memory(connection)
                    # A handler that still runs belongs to the database before this one.
                    self._held_right = None
                else:
                    # Another process may be recovering the log or creating the tables; migrate() resets the timeout.
                    connection.execute("PRAGMA busy_timeout = 60000")
                    check_file_not_sealed(connection, self.name)
                    migrate(connection, self.name)
        except BaseException:
            connection.close()
            raise
        return connection

    async def close(self) -> None:
        self._all_open.discard(self)
        await self._writer.close()
        if not self._in_memory:
            await self._reader.close()
            self._reading.close()
        self._connection.close()

    @property
    def dispatches_alone(self) -> bool:
        return self._held_right is not None and self._held_right.is_held

    async def declare(self, declared: Declared) -> None:
        await super().declare(declared)
        if await self.handled_types() != frozenset(self._types):
            types = encoded(sorted(self._types))
            await self._write(lambda connection: connection.execute(SQL["note_handled_types"], (types,)).rowcount)

    async def publish_types(self, types: Mapping[str, str]) -> None:
        self._types |= types.keys()
        # Opening a file must not write to it if every type is published already.
        if types.items() - (await self.published_types()).items():
            await super().publish_types(types)

    async def acquire_dispatch(self) -> DispatchRight:
        tries = round(OWN_PATIENCE / RETRY_AFTER)
        while self._held_right is not None and self._held_right.is_held and tries:
            # A handler of an earlier run has not ended, but may be about to.
            await asyncio.sleep(RETRY_AFTER)
            tries -= 1
        self._held_right = self._right_in_memory() if self._in_memory else await self._take_right()
        self._dispatching_since = self._clock.now_ms()
        return self._held_right

    def note_beginnings(self, begun: Sequence[Beginning]) -> None:
        if self._held_right is not None:
            self._held_right.note_beginnings(begun)

    async def recover(self, now: int) -> Recovery:
        right = NoLock() if self._held_right is None else self._held_right
        nodes, begun = right.previous, right.beginnings()
        return await self._write(lambda connection: recovering.recover(connection, now, nodes, begun), rows=ledger.BITE)

    def _right_in_memory(self) -> NoLock:
        if self._held_right is not None and self._held_right.is_held:
            raise AlreadyRunning(
                "a handler of an earlier run has not ended yet; wait for it, then run again; "
                "to wait for that, use run(standby=True) or running(standby=True)"
            )
        return NoLock()

    async def _take_right(self) -> FileLock:
        # A process that moves the queue holds the lock too. So check for a move both when the lock is refused and after
        # it is granted: a move may have ended while this process waited.
        try:
            right = await acquire(self.name)
        except AlreadyRunning:
            await self._check_not_moved()
            raise
        try:
            await self._check_not_moved()
        except BaseException:
            right.release()
            raise
        return right

    async def _check_not_moved(self) -> None:
        await self._read(lambda connection: check_not_sealed(connection.execute(READ_MARKS).fetchall(), self.name))

    def add_through(self, connection: object, tasks: Sequence[NewTask]) -> list[Stored]:
        """Store tasks inside the caller's own transaction; they exist once the caller commits."""
        if not isinstance(connection, Connection):
            raise SubmissionError(
                f"connection must be a {sqlite_module()}.Connection to {self.name}, "
                f"not {type(connection).__module__}.{type(connection).__name__}; two SQLite libraries "
                "in one process would break each other's locks"
            )
        # The caller may have set its own factories, but the code below expects plain tuples and str.
        factories = connection.row_factory, connection.text_factory
        connection.row_factory, connection.text_factory = None, str
        try:
            self._check_same_file(connection)
            session = Session(connection, self._lost_ids)
            (answer,), commit = inbox.insert(session, [tasks], self._clock.now_ms())
            session.note(commit)
            if commit.fresh:
                self._lost_ids.give_out(commit.fresh[-1][0])
        except DatabaseError as wrong:
            raise translated(wrong, self.name) from wrong
        finally:
            connection.row_factory, connection.text_factory = factories
        if isinstance(answer, SubmissionError):
            raise answer
        return answer

    def _check_same_file(self, connection: Connection) -> None:
        if self._in_memory:
            raise SubmissionError("connection= needs a scheduler on a file; this one is in memory")
        try:
            opened = {row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main"}
        except DatabaseError as wrong:
            raise SubmissionError(f"connection cannot be used: {wrong}") from wrong
        if not any(path and Path(path).samefile(self.name) for path in opened):
            raise SubmissionError(f"connection must be open on {self.name}, not on {', '.join(opened) or MEMORY}")

    # Reading

    async def _read(self, request: Callable[[AnyConnection], T]) -> T:
        if self._writer.lost is not None:
            raise self._writer.lost
        if self._in_memory:
            await self._may_read_on_loop()
            return request(self._reading_session)
        return await super()._read(request)

    async def _look_up(self, request: Callable[[AnyConnection], T]) -> T:
        """Read on the event loop while no thread is at work: a hand-over takes far longer (docs/decisions/0041)."""
        if (
            self._in_memory
            or not await self._may_read_on_loop()
            or not self._writer.is_free
            or not self._reader.is_idle
        ):
            return await self._read(request)
        try:
            # The connection that writes never waits for a lock, so the loop cannot be blocked.
            return request(self._writer.session)
        except (DatabaseError, StoreCorrupt, *UNDECODABLE):
            # The thread waits until the file is free, or finds out which row is damaged.
            return await self._read(request)

    async def _may_read_on_loop(self) -> bool:
        """Let the loop do its other work after a few reads. Return False if too many callers read at the same time."""
        if self._reads_on_loop >= MOST_READS_ON_LOOP:
            await asyncio.sleep(0)
        if not self._reads_on_loop:
            asyncio.get_running_loop().call_soon(self._next_iteration)
        self._reads_on_loop += 1
        return self._reads_on_loop <= MOST_READS_ON_LOOP

    def _next_iteration(self) -> None:
        self._reads_on_loop = 0

    async def foreign_changes(self) -> Changes | None:
        if self._in_memory:
            return None
        self._writer.check_files()
        if isinstance(self._held_right, FileLock):
            self._held_right.check()
        version = await self._write(_data_version, rows=0)
        before, self._seen_version = self._seen_version, version
        return ANY_CHANGES if before != version else None

    async def durable(self) -> None:
        """Wait until all commits so far, including those of other processes, would survive a power cut."""
        if self._writer.must_sync:
            version = await self._write(_data_version, rows=0)
            if version != self._forced_version:
                # Another process may hang or die between its commit and its sync, so sync the log on its behalf.
                self._forced_version = version
                self._writer.committed_elsewhere()
        await super().durable()

    def _nodes(self, connection: AnyConnection, running: Sequence[TaskRecord], view: View) -> list[NodeAtWork]:
        if not self.dispatches_alone:
            return [] if self._in_memory else super()._nodes(connection, running, view)
        return [node_at_work(str(os.getpid()), self._dispatching_since, running, view, is_here=True)]

    def _own_node(self) -> int | None:
        return 1 if self.dispatches_alone else None

    async def facts(self, *, integrity: bool = False) -> dict[str, Any]:
        return {**await super().facts(integrity=integrity), "durability": self._durability}


def _data_version(connection: AnyConnection) -> int:
    """Return a number that changes with every commit of another process."""
    version: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return version


class LastingMemory(SqliteStore):
    """A store in memory whose data lives as long as the object, not only until it is closed."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(MEMORY, "full", clock)
        self._kept: Connection | None = None

    def _prepared(self) -> Connection:
        if self._kept is None:
            self._kept = super()._prepared()
            weakref.finalize(self, self._kept.close)
        return self._kept

    async def close(self) -> None:
        await self._writer.close()
