"""Sessions inside a transaction of the caller's own. Nobody knows how long that takes, so plain tasks lock nothing."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeGuard, TypeVar

import psycopg
from psycopg.rows import tuple_row

from taskmill.errors import SubmissionError
from taskmill.store.postgres.connection import adapt
from taskmill.store.postgres.session import Session, Statements

T = TypeVar("T")

PATIENCE_MS = 60_000
"""Milliseconds for which a caller waits for the right to write, unless its connection has a ``lock_timeout``."""


def is_async(connection: object) -> TypeGuard[psycopg.AsyncConnection[Any]]:
    return isinstance(connection, psycopg.AsyncConnection)


class _LocksWhenNeeded(Statements):
    def be_alone(self) -> None:
        if self.is_alone:
            return
        level = self.script("SHOW transaction_isolation")
        if level in ("repeatable read", "serializable"):
            # What others have changed before us it would not see, however long it is alone.
            raise SubmissionError(
                f"connection is in a transaction at {level.upper()}, which sees the queue as it was before; "
                "a task with a key, a parent, dependencies or every= can be stored at READ COMMITTED only"
            )
        lock = "LOCK TABLE taskmill_writing IN EXCLUSIVE MODE"
        if self.script("SHOW lock_timeout") == "0":
            # The caller has not said how long it would wait, and may wait for itself in another transaction.
            lock = f"SET LOCAL lock_timeout = '{PATIENCE_MS}ms'; {lock}; SET LOCAL lock_timeout = 0"
        self.script(lock)
        self.is_alone = True


class CallersSession(_LocksWhenNeeded, Session):
    """On a connection of the caller's thread."""


class CallersAsyncSession(_LocksWhenNeeded):
    """On a connection of the caller's event loop.

    What a store decides between its statements is plain code. It runs in a thread, and the loop runs the statements.
    """

    def __init__(self, raw: psycopg.AsyncConnection[Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._cursor = psycopg.AsyncRawCursor(raw, row_factory=tuple_row)
        adapt(self._cursor.adapters)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Whoever is cancelled waits all the same: nobody must use the caller's connection after it has gone on.

        The thread is none of the loop's: callers that wait to be alone would keep all of those, and the one they wait
        for might need another.
        """
        working: asyncio.Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                result = work()
            except BaseException as wrong:  # noqa: BLE001 - it is raised where it was asked for
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
        # A loop that was closed under us has nobody left to be told.
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
        return _Answer(cursor.rowcount, await cursor.fetchall() if cursor.description is not None else [])


class _Answer:
    """What a statement has answered."""

    def __init__(self, rowcount: int, rows: list[tuple[Any, ...]]) -> None:
        self.rowcount = rowcount
        self._rows = rows

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows
