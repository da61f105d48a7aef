"""Reading a database file: the reads of an open store, and a file that is opened for reading only.

:class:`FileReader` changes nothing: it creates, migrates and recovers nothing, and it leaves the write-ahead log as it
is. SQLite's last connection to a file normally copies the log into it and deletes the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from weakref import WeakSet

from taskmill.core.process import node_name
from taskmill.errors import InvalidState, SchemaTooNew, StoreError
from taskmill.model.cluster import NodeAtWork
from taskmill.model.records import TaskRecord
from taskmill.store import sql
from taskmill.store.moving.marks import READ as READ_MARKS
from taskmill.store.moving.marks import check_not_sealed
from taskmill.store.sql.connection import Connection as AnyConnection
from taskmill.store.sql.read_side import CallingThread, ReadingThread, ReadSide, reading_thread
from taskmill.store.sql.rows import View
from taskmill.store.sqlite.connection import (
    MEMORY,
    Connection,
    DatabaseError,
    connect_to_read,
    sqlite_module,
    sqlite_version,
    translated,
    translated_errors,
)
from taskmill.store.sqlite.dispatch_lock import held_since, holder
from taskmill.store.sqlite.migrate import NEWEST_VERSION, stored_version
from taskmill.store.sqlite.session import Session

if TYPE_CHECKING:
    from taskmill.core.ports import Clock

T = TypeVar("T")


class FileReads(ReadSide):
    """The reads of a database file, in a thread of their own."""

    is_cluster = False
    is_shared = True
    """True if other processes can open it: it is not in memory."""
    _reader: ReadingThread
    _reading_session: Session
    _all_open: ClassVar[WeakSet[FileReads]] = WeakSet()
    _opened_in = 0
    """The process that opened it."""

    def refuse_inherited_file(self) -> None:
        """Raise ``InvalidState`` if a parent process had this file open when it forked this one.

        SQLite notes which locks its process holds on a file. A forked process inherits the notes and not the locks, so
        every connection that it opens may break the locking of the file and corrupt it.
        """
        for other in self._all_open:
            if other._opened_in != os.getpid() and other.name != MEMORY and _is_same_file(other.name, self.name):
                raise InvalidState(
                    f"process {other._opened_in} had {self.name} open when it forked this process ({os.getpid()}), "
                    "which therefore cannot open that file; close the scheduler before the fork, or start processes "
                    "with the method 'spawn'"
                )
        self._opened_in = os.getpid()

    async def _read(self, request: Callable[[AnyConnection], T]) -> T:
        def read() -> T:
            try:
                return self._decoded(request, self._reading_session)
            except DatabaseError as wrong:
                told = translated(wrong, self.name)
            try:
                named = self._naming_damage(told, self._reading_session)
            except DatabaseError:
                # The rows cannot be read one by one either, so the damaged one stays unnamed.
                raise told from None
            raise named from told

        return await self._reader.run(read)

    def _nodes(self, connection: AnyConnection, running: Sequence[TaskRecord], view: View) -> list[NodeAtWork]:  # noqa: ARG002
        """Return the process that dispatches, if any. Its lock proves that it is alive, so it was last seen now."""
        process = holder(self.name)
        if process is None:
            return []
        return [node_at_work(process, held_since(self.name) or view.now, running, view)]

    def _own_node(self) -> int | None:
        return None

    def dispatcher_is_alive(self) -> bool:
        return self.is_shared and holder(self.name) is not None

    async def facts(self, *, integrity: bool = False) -> dict[str, Any]:
        def read(connection: AnyConnection) -> dict[str, Any]:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (page_size,) = connection.execute("PRAGMA page_size").fetchone()
            # quick_check reads every page, which takes seconds for a large file.
            problem = connection.execute("PRAGMA quick_check(1)").fetchone() if integrity else None
            return {
                **({} if problem is None else {"integrity": problem[0], "damaged": _damage(connection)}),
                "bytes": pages * page_size,
                "wal_bytes": log_bytes(self.name) if self.is_shared else 0,
                "dispatcher": holder(self.name) if self.is_shared else None,
            }

        facts = await self._read(read)
        return {
            "store": self.name,
            "kind": "sqlite",
            "module": sqlite_module(),
            "sqlite_version": ".".join(map(str, sqlite_version())),
            "schema": NEWEST_VERSION,
            **facts,
        }


class FileReader(FileReads):
    """A database file that is open for reading only."""

    def __init__(self, path: str, clock: Clock, *, in_thread: bool) -> None:
        self.name = path
        self._clock = clock
        self._in_thread = in_thread

    async def open(self) -> None:
        self.refuse_inherited_file()
        self._reader = reading_thread(self._clock) if self._in_thread else CallingThread()
        try:
            self._reading_session = Session(await self._reader.run(self._connect))
        except BaseException:
            await self._reader.close()
            raise
        self._all_open.add(self)

    def _connect(self) -> Connection:
        # Leave a log that exists. Without one, the connection creates an empty log, which must not be left behind.
        connection = connect_to_read(self.name, leaves_log=log_bytes(self.name) > 0)
        try:
            with translated_errors(self.name):
                check_file_not_sealed(connection, self.name)
                _check_schema(connection, self.name)
        except BaseException:
            connection.close()
            raise
        return connection

    async def close(self) -> None:
        self._all_open.discard(self)
        await self._reader.close()
        self._reading_session.raw.close()


def log_bytes(database: str) -> int:
    """Return the size of the write-ahead log, 0 if there is none."""
    try:
        return os.stat(database + "-wal").st_size
    except OSError:
        return 0


def node_at_work(
    process: str, since: int, running: Sequence[TaskRecord], view: View, *, is_here: bool = False
) -> NodeAtWork:
    """Describe the process that dispatches a file: every running task is at work there."""
    slots = view.rules.declared.max_concurrency
    return NodeAtWork(None, node_name(process), since, view.now, True, slots, [task.id for task in running], is_here)


def check_file_not_sealed(connection: Connection, name: str) -> None:
    """Raise ``StoreMoved`` if the file is sealed by a move.

    Called before the migration, so that a sealed file with a newer schema is reported as moved, not as too new.
    """
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'taskmill_setting'").fetchone():
        check_not_sealed(connection.execute(READ_MARKS), name)


def _check_schema(connection: Connection, name: str) -> None:
    """Raise an error unless the schema is the newest one; an older one is not read, because it is never migrated."""
    found = stored_version(connection, name)
    if found > NEWEST_VERSION:
        raise SchemaTooNew(f"{name} has schema {found}, this taskmill knows up to {NEWEST_VERSION}; upgrade taskmill")
    if found < NEWEST_VERSION:
        raise StoreError(
            f"{name} has schema {found}, this taskmill reads schema {NEWEST_VERSION}; it was left as it is."
            " A scheduler that opens it upgrades it: take a backup, then start your program with this version"
        )


def _is_same_file(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        return False


def _damage(connection: AnyConnection) -> list[str]:
    return [str(damage) for damage in sql.damage.find(connection)]
