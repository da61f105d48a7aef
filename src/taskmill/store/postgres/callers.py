"""Store tasks in the transactions of callers, and find out which of those were committed.

A caller's transaction may stay open for any time, so storing plain tasks takes no lock. Other nodes are notified once
the transaction is committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeGuard, TypeVar

import msgspec
import psycopg
from psycopg.rows import tuple_row

from taskmill.errors import SubmissionError
from taskmill.model.commit import NO_CHANGES, Changes
from taskmill.store.postgres.connection import adapt
from taskmill.store.postgres.session import Session, Statements

T = TypeVar("T")

PATIENCE_MS = 60_000
"""Milliseconds for which a caller waits for the exclusive lock, unless its connection has a ``lock_timeout``."""


def is_async(connection: object) -> TypeGuard[psycopg.AsyncConnection[Any]]:
    return isinstance(connection, psycopg.AsyncConnection)


class _LocksWhenNeeded(Statements):
    def be_alone(self) -> None:
        if self.is_alone:
            return
        level = self.script("SHOW transaction_isolation")
        if level in ("repeatable read", "serializable"):
            # The snapshot is older than the lock, so it would miss changes that were committed in between.
            raise SubmissionError(
                f"connection is in a transaction at {level.upper()}, which does not see the latest state of the queue; "
                "a task with a key, a parent, dependencies or every= can be stored at READ COMMITTED only"
            )
        lock = "LOCK TABLE taskmill_writing IN EXCLUSIVE MODE"
        if self.script("SHOW lock_timeout") == "0":
            # Without a timeout the caller could wait forever for another transaction of its own.
            lock = f"SET LOCAL lock_timeout = '{PATIENCE_MS}ms'; {lock}; SET LOCAL lock_timeout = 0"
        self.script(lock)
        self.is_alone = True


class CallersSession(_LocksWhenNeeded, Session):
    """A session on the caller's synchronous connection."""


class CallersAsyncSession(_LocksWhenNeeded):
    """A session on the caller's asynchronous connection.

    The store's code between statements is synchronous. It runs in a thread, and the event loop runs the statements.
    """

    def __init__(self, raw: psycopg.AsyncConnection[Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._cursor = psycopg.AsyncRawCursor(raw, row_factory=tuple_row)
        adapt(self._cursor.adapters)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run ``work`` in a new thread and wait for it, even if this coroutine is cancelled.

        The thread must not use the caller's connection after the caller has continued. It is not from the loop's thread
        pool: callers that wait for the exclusive lock could occupy the whole pool, and the one that holds the lock
        might need a thread to release it.
        """
        working: asyncio.Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                result = work()
            except BaseException as wrong:  # noqa: BLE001 - it is raised in the caller
                self._tell(working.set_exception, wrong)
            else:
                self._tell(working.set_result, result)

        threading.Thread(target=run, name="taskmill-caller", daemon=True).start()
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            await asyncio.wait([working])
            raise

    def _tell(self, callback: Callable[[Any], None], said: object) -> None:
        # The loop may have been closed in the meantime.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, said)

    def _run(self, text: str, parameters: Sequence[Any] | None) -> _Answer:
        return self._on_loop(self._execute(text, parameters))

    def script(self, text: str) -> Any:
        row = self._on_loop(self._execute(text, None, prepare=False)).fetchone()
        return None if row is None else row[0]

    def _on_loop(self, statement: Coroutine[Any, Any, _Answer]) -> _Answer:
        return asyncio.run_coroutine_threadsafe(statement, self._loop).result()

    async def _execute(self, text: str, parameters: Sequence[Any] | None, *, prepare: bool = True) -> _Answer:
        cursor = self._cursor
        await cursor.execute(text.encode(), parameters, prepare=prepare)
        while cursor.nextset():
            continue
        description = cursor.description
        return _Answer(cursor.rowcount, description, await cursor.fetchall() if description is not None else [])


class _Answer:
    """The result of a statement."""

    def __init__(self, rowcount: int, description: Any, rows: list[tuple[Any, ...]]) -> None:
        self.rowcount = rowcount
        self.description = description
        self._rows = rows

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows


_decode_states = msgspec.json.Decoder(list[tuple[str, str | None]]).decode


class CallersTransactions:
    """Callers' transactions in progress, by number, and what they change in the queue. Any thread may add one."""

    def __init__(self) -> None:
        self._changes: dict[str, Changes] = {}

    def __len__(self) -> int:
        return len(self._changes)

    def add(self, number: str, changes: Changes) -> None:
        self._changes[number] = self._changes.get(number, NO_CHANGES).joined(changes)

    def take_committed(self, session: Session) -> Changes | None:
        """Remove the transactions that have ended; return the changes of the committed ones, None if there are none."""
        committed: Changes | None = None
        for number, state in _states(session, sorted(self._changes)):
            if state != "in progress":
                changes = self._changes.pop(number)
                if state == "committed":
                    committed = changes.joined(committed or NO_CHANGES)
        return committed


def _states(session: Session, numbers: list[str]) -> list[tuple[str, str | None]]:
    """Return the number and state of each transaction; the state is None if the server has lost it in a crash."""
    try:
        given = msgspec.json.encode(numbers).decode()
        return _decode_states(session.execute("transaction_states", (given,)).fetchone()[0])
    except psycopg.errors.InvalidParameterValue:
        if len(numbers) == 1:
            # The server calls this number "in the future": it crashed, and has not assigned the number again.
            return [(numbers[0], None)]
        return [state for number in numbers for state in _states(session, [number])]
