"""The SQLite store: the Store socket filled with a writer, a reader and a lock."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from taskmill.cron_socket import CronBeginning, CronDeclaration, Firings, Occasion
from taskmill.errors import ConfigError, SubmissionError
from taskmill.model.controls import Change, Declared, Scope
from taskmill.model.machine import Machine
from taskmill.model.options import text
from taskmill.model.retention import PruneRule
from taskmill.model.stages import Described, NewTask, Stored
from taskmill.policy.inbox import Answer
from taskmill.ports import (
    Arrived,
    CancelResult,
    Clock,
    DispatchRight,
    Effects,
    Origin,
    Recovery,
    SeriesChange,
    Turn,
    TurnResult,
)
from taskmill.store.sqlite import controls, cron, inbox, ledger, machine, pruning, reviving, series
from taskmill.store.sqlite.connection import (
    MEMORY,
    Connection,
    DatabaseError,
    Durability,
    connect,
    create_file,
    sqlite_module,
    sqlite_version,
    translated,
    translated_errors,
)
from taskmill.store.sqlite.dispatch_lock import NoLock, acquire, holder
from taskmill.store.sqlite.log_file import LogFile
from taskmill.store.sqlite.migrate import migrate, newest_version
from taskmill.store.sqlite.read_side import ReadSide
from taskmill.store.sqlite.thread import StoreThread
from taskmill.store.sqlite.writer import Writer
from taskmill.store_meter import StoreMeter

T = TypeVar("T")

CANCEL_ROWS = 64
"""How many rows a cancellation is taken for: enough to be written in the thread, unless the loop would starve it."""
MOST_ARRIVALS = 128
"""Concurrent submits that share one insert; more are written in turns, so that their callers work meanwhile."""


class SqliteStore(ReadSide):
    """One database file, or ``":memory:"``."""

    def __init__(self, path: str | os.PathLike[str], durability: Durability, clock: Clock) -> None:
        self.name = os.fspath(path)
        self._durability: Durability = durability
        self._clock = clock
        self._in_memory = self.name == MEMORY
        self.is_shared = not self._in_memory
        self._arrivals: list[tuple[Sequence[NewTask], asyncio.Future[list[Stored]]]] = []
        self.watch_added: Callable[[Arrived], None] = lambda _arrived: None

    # Opening and closing

    async def open(self) -> None:
        if self._in_memory:
            self._connection = self._prepared()
            self._reading: Connection = self._connection
            log = None
        else:
            self._reader = StoreThread("taskmill-reader", self._clock)
            try:
                self._connection, self._reading, log = await self._reader.run(self._connections)
            except BaseException:
                await self._reader.close()
                raise
        self._seen_version = self._data_version()
        self._writer = Writer(self._connection, log, self.name, full=self._durability == "full", clock=self._clock)

    def _connections(self) -> tuple[Connection, Connection, LogFile]:
        """To write, to read, and to keep the log."""
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
            create_file(self.name)
        connection = connect(self.name)
        try:
            with translated_errors(self.name):
                migrate(connection, self.name)
        except BaseException:
            connection.close()
            raise
        return connection

    async def close(self) -> None:
        await self._writer.close()
        if not self._in_memory:
            await self._reader.close()
            self._reading.close()
        self._connection.close()

    def measure(self, meter: StoreMeter) -> None:
        self._writer.meter = meter

    async def acquire_dispatch(self, *, recovering: bool = False) -> DispatchRight:
        return NoLock() if self._in_memory else await acquire(self.name + "-dispatch", recovering=recovering)

    # Writing

    def _write(self, request: Callable[[Connection], T], rows: int = 1) -> Awaitable[T]:
        return self._writer.ask(request, rows)

    def when_durable(self, callback: Callable[[], None]) -> None:
        # If the disk refuses, the commit stands all the same, and the writer has said so.
        self._writer.when_durable(callback, lambda _wrong: callback())

    def make_durable_soon(self) -> None:
        self._writer.sync_soon()

    async def durable(self) -> None:
        done = asyncio.Event()
        self.when_durable(done.set)
        await done.wait()

    def add(self, tasks: Sequence[NewTask]) -> Awaitable[list[Stored]]:
        """Concurrent callers share one insert as well as one commit."""
        answer: asyncio.Future[list[Stored]] = asyncio.get_running_loop().create_future()
        self._arrivals.append((tasks, answer))
        if len(self._arrivals) == 1:
            asyncio.get_running_loop().call_soon(self._store_arrivals)
        elif len(self._arrivals) >= MOST_ARRIVALS:
            self._store_arrivals()
        return answer

    def _store_arrivals(self) -> None:
        arrivals, self._arrivals = self._arrivals, []
        if not arrivals:
            return
        requests = [tasks for tasks, _ in arrivals]

        def committed(stored: tuple[list[Answer], Arrived]) -> None:
            answers, arrived = stored
            self.watch_added(arrived)
            self._writer.when_durable(lambda: answered(answers), failed)

        def answered(answers: list[Answer]) -> None:
            for (_, waiting), answer in zip(arrivals, answers, strict=True):
                if not waiting.done():
                    if isinstance(answer, SubmissionError):
                        waiting.set_exception(answer)
                    else:
                        waiting.set_result(answer)

        def failed(wrong: Exception) -> None:
            for _, waiting in arrivals:
                if not waiting.done():
                    waiting.set_exception(wrong)

        now = self._clock.now_ms()
        self._writer.post(
            lambda connection: inbox.insert(connection, requests, now), sum(map(len, requests)), committed, failed
        )
        self._writer.kick()

    def add_through(self, connection: object, tasks: Sequence[NewTask]) -> list[Stored]:
        """Store tasks inside the caller's own transaction; they exist once the caller commits."""
        if not isinstance(connection, Connection):
            raise SubmissionError(
                f"connection must be a {sqlite_module()}.Connection to {self.name}, "
                f"not {type(connection).__module__}.{type(connection).__name__}; two SQLite libraries "
                "in one process would break each other's locks"
            )
        # The caller may have set factories of its own; ours read plain rows.
        factories = connection.row_factory, connection.text_factory
        connection.row_factory, connection.text_factory = None, str
        try:
            self._check_same_file(connection)
            (answer,), _ = inbox.insert(connection, [tasks], self._clock.now_ms())
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

    async def spawn(self, tasks: Sequence[NewTask], origin: Origin) -> list[Stored]:
        now = self._clock.now_ms()
        answer, _ = await self._writer.ask(
            lambda connection: inbox.spawn(connection, tasks, origin, now),
            len(tasks),
            at_commit=lambda spawned: self.watch_added(spawned[1]),
        )
        if isinstance(answer, SubmissionError):
            raise answer
        return answer

    async def turn(self, turn: Turn) -> TurnResult:
        heavy = turn.promote or turn.expire or turn.survey
        rows = (
            len(turn.judged) + len(turn.hooks) + len(turn.claims) + len(turn.progress) + (ledger.BITE if heavy else 1)
        )
        return await self._writer.ask(lambda connection: ledger.commit_turn(connection, turn), rows, durable=False)

    async def recover(self, now: int) -> Recovery:
        return await self._write(lambda connection: ledger.recover(connection, now), rows=ledger.BITE)

    async def publish_types(self, types: Mapping[str, str]) -> None:
        given = msgspec.json.encode(types).decode()

        def publish(connection: Connection) -> None:
            connection.execute(inbox.SQL["publish_types"], (given,))

        await self._write(publish)

    async def published_types(self) -> Mapping[str, str]:
        def read(connection: Connection) -> dict[str, str]:
            (found,) = connection.execute(inbox.SQL["published_types"]).fetchone()
            types: dict[str, str] = msgspec.json.decode(found)
            return types

        return await self._read(read)

    async def declare(self, declared: Declared) -> None:
        await self._write(lambda connection: controls.declare(connection, declared))

    async def note_machine(self, seen: Machine) -> None:
        await self._write(lambda connection: machine.note_machine(connection, seen))

    async def change(self, changes: Mapping[Scope, Change]) -> None:
        await self._write(lambda connection: controls.change(connection, changes))

    async def pause(self, scope: Scope, now: int, until: int | None, *, relative: bool = False) -> bool:
        return await self._write(lambda connection: controls.pause(connection, scope, now, until, relative=relative))

    async def resume(self, scope: Scope, now: int) -> bool:
        return await self._write(lambda connection: controls.resume(connection, scope, now), rows=ledger.BITE)

    async def end_pauses(self, now: int) -> list[Scope]:
        return await self._write(lambda connection: controls.end_pauses(connection, now), rows=ledger.BITE)

    async def set_priority(self, id: int, priority: int) -> Effects | None:
        return await self._write(lambda connection: controls.set_priority(connection, id, priority))

    async def save(self, id: int, attempt: int, saved: str) -> bool:
        def write(connection: Connection) -> bool:
            return connection.execute(ledger.SQL["save"], (id, attempt, saved)).rowcount == 1

        return await self._write(write)

    async def cancel(self, ids: Sequence[int], now: int) -> CancelResult:
        # A tree may hang on each.
        rows = max(len(ids), CANCEL_ROWS)
        return await self._write(lambda connection: ledger.cancel(connection, ids, now), rows)

    async def revive(self, id: int, now: int) -> Described | None:
        return await self._write(lambda connection: reviving.revive(connection, id, now))

    async def pause_series(self, id: int, now: int) -> SeriesChange:
        return await self._write(lambda connection: series.pause(connection, id, now))

    async def resume_series(self, id: int, now: int) -> SeriesChange:
        return await self._write(lambda connection: series.resume(connection, id, now))

    async def cancel_series(self, id: int, now: int) -> SeriesChange:
        return await self._write(lambda connection: ledger.cancel_series(connection, id, now))

    async def prune(self, rules: Sequence[PruneRule], now: int, limit: int) -> int:
        return await self._write(lambda connection: pruning.prune(connection, rules, now, limit), rows=limit)

    async def shift_clock(self, by_ms: int) -> None:
        def write(connection: Connection) -> None:
            connection.execute(ledger.SQL["shift_relative"], (by_ms,))
            connection.execute(ledger.SQL["shift_deadlines"], (by_ms,))
            connection.execute(ledger.SQL["shift_waits"], (by_ms,))
            connection.execute(controls.SQL["shift_pauses"], (by_ms,))
            connection.execute(controls.SQL["bump_version"])
            if by_ms < 0:
                cron.rewind(connection, now, -by_ms)

        now = self._clock.now_ms()

        await self._write(write, rows=ledger.BITE)

    # Cron

    async def begin_cron(self, declared: Sequence[CronDeclaration], now: int, zone: tzinfo) -> CronBeginning:
        from taskmill.store.sqlite import cron_firing

        return await self._write(lambda connection: cron_firing.begin(connection, declared, now, zone), len(declared))

    async def fire_cron(self, occasions: Sequence[Occasion], now: int, zone: tzinfo) -> Firings:
        from taskmill.store.sqlite import cron_firing

        def write(connection: Connection) -> tuple[Firings, Arrived]:
            return cron_firing.fire(connection, occasions, now, zone)

        firings, arrived = await self._write(write, len(occasions))
        self.watch_added(arrived)
        return firings

    # Reading

    async def _read(self, request: Callable[[Connection], T]) -> T:
        if self._in_memory:
            return request(self._connection)

        def read() -> T:
            try:
                return request(self._reading)
            except DatabaseError as wrong:
                raise translated(wrong, self.name) from wrong

        return await self._reader.run(read)

    def _data_version(self) -> int:
        version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return version

    async def foreign_changes(self) -> bool:
        if self._in_memory:
            return False
        version = await self._write(lambda _: self._data_version(), rows=0)
        before, self._seen_version = self._seen_version, version
        return before != version

    def dispatcher_is_alive(self) -> bool:
        return self.is_shared and holder(self.name + "-dispatch") is not None

    async def facts(self) -> dict[str, Any]:
        def read(connection: Connection) -> dict[str, Any]:
            (problem,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (page_size,) = connection.execute("PRAGMA page_size").fetchone()
            wal = Path(self.name + "-wal")
            wal_bytes = wal.stat().st_size if self.is_shared and wal.exists() else 0
            return {
                "integrity": problem,
                "bytes": pages * page_size,
                "wal_bytes": wal_bytes,
                "dispatcher": holder(self.name + "-dispatch") if self.is_shared else None,
            }

        facts = await self._read(read)
        return {
            "store": self.name,
            "kind": "sqlite",
            "module": sqlite_module(),
            "sqlite_version": ".".join(map(str, sqlite_version())),
            "schema": newest_version(),
            "durability": self._durability,
            **facts,
        }


def open_store(store: str | os.PathLike[str] | SqliteStore, durability: Durability, clock: Clock) -> SqliteStore:
    """The store a user's words name; one that was made before is taken as it is."""
    if isinstance(store, SqliteStore):
        return store
    name = os.fspath(store) if isinstance(store, str | os.PathLike) else None
    if not isinstance(name, str):
        raise ConfigError(f"store must be a file name or ':memory:', not {type(store).__name__}")
    text(name, "store", ConfigError)
    if name.startswith(("postgresql://", "postgres://")):
        raise ConfigError("store: PostgreSQL is not supported by this version; give the name of an SQLite file")
    return SqliteStore(name, durability, clock)
