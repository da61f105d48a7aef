"""Sessions on the server that stay open between tests, as behind a pooler that lends whole sessions.

Most of the time of a test on PostgreSQL goes into new sessions: each reads the catalog, parses and plans all statements
again. So a store that is closed leaves its sessions, with their prepared statements, to the next store on the same
schema. A session serves one purpose only, because its plans depend on its settings. It is reset when it is left, and
taken up by the code that opens new ones: the Python object, its settings and its adapters are new.

This applies to the schemas that are handed out filled (:mod:`tests.postgres.schemas`). Tests of connections use other
schemas, and other programs are other processes; both always get new sessions.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple, Self, cast
from unittest.mock import patch

import psycopg
from psycopg import pq
from psycopg._preparing import PrepareManager

from taskmill.store.postgres import connection, reading, store
from taskmill.store.postgres.connection import GREETING_PATIENCE, PatientConnection

SPARE = 4
"""How many sessions of a kind are kept for one address: few tests have more stores open on a schema."""

_RESET = b"RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all()"


class _Kind(NamedTuple):
    """Sessions of the same kind have the same plans."""

    address: str
    settings: tuple[tuple[str, str], ...]
    durability: str


class _Session(NamedTuple):
    raw: pq.abc.PGconn
    prepared: PrepareManager


class WarmSessions:
    """The unused sessions of this process."""

    def __init__(self) -> None:
        self._unused: dict[_Kind, list[_Session]] = defaultdict(list)
        self._lock = threading.Lock()
        self._process = os.getpid()

    def take(self, kind: _Kind) -> _Session | None:
        while True:
            with self._lock:
                if not self._unused[kind] or os.getpid() != self._process:
                    return None
                session = self._unused[kind].pop()
            # The server sends nothing to an unused session, unless it ends the session.
            spoken_to = select.poll()
            spoken_to.register(session.raw.socket, select.POLLIN)
            if not spoken_to.poll(0):
                return session
            session.raw.finish()

    def leave(self, kind: _Kind, session: _Session) -> bool:
        """Keep a session that was reset; return False if there are enough."""
        with self._lock:
            if len(self._unused[kind]) >= SPARE or os.getpid() != self._process:
                return False
            self._unused[kind].append(session)
            return True

    def end(self, address: str | None = None) -> None:
        """End the unused sessions for this address, or all of them."""
        with self._lock:
            kinds = [kind for kind in self._unused if address in (None, kind.address)]
            for session in [session for kind in kinds for session in self._unused.pop(kind)]:
                session.raw.finish()


_kind: ContextVar[_Kind | None] = ContextVar("_kind", default=None)
"""The kind of session that is being opened; None if it must be a new one."""


def _closed() -> pq.abc.PGconn:
    raw = pq.PGconn.connect_start(b"host=/")
    raw.finish()
    return raw


_CLOSED = _closed()
"""What a connection has left after its session was taken out."""


@contextlib.contextmanager
def kept_open(applies: Callable[[str], bool]) -> Iterator[WarmSessions]:
    """Let the stores of this process pass on their sessions if this applies to their address."""
    sessions, really_connect = WarmSessions(), connection.connect

    class WarmConnection(PatientConnection):
        kind: _Kind | None = None

        @classmethod
        def connect(cls, conninfo: str = "", **options: Any) -> Self:
            kind = _kind.get()
            found = None if kind is None else sessions.take(kind)
            if found is None:
                opened = super().connect(conninfo, **options)
            else:
                opened = cls(found.raw)
                opened._prepared = found.prepared
                opened._autocommit = options["autocommit"]
            opened.kind = kind
            return opened

        def close(self) -> None:
            if self.kind is not None and self._is_reset() and sessions.leave(self.kind, self._taken_out()):
                self.pgconn = _CLOSED
            super().close()

        def _taken_out(self) -> _Session:
            return _Session(self.pgconn, self._prepared)

        def _is_reset(self) -> bool:
            if self.is_given_up or self.closed or self.info.transaction_status != pq.TransactionStatus.IDLE:
                return False
            self.patience = GREETING_PATIENCE
            try:
                self.execute(_RESET)
            except psycopg.Error:
                return False
            return True

    def connect(address: str, settings: dict[str, str], *rest: Any, **named: Any) -> PatientConnection:
        durability = cast("str", rest[0] if rest else named.get("durability", "full"))
        kind = _Kind(address, tuple(settings.items()), durability) if applies(address) else None
        token = _kind.set(kind)
        try:
            return really_connect(address, settings, *rest, **named)
        finally:
            _kind.reset(token)

    with (
        patch.object(connection, "PatientConnection", WarmConnection),
        patch.object(store, "connect", connect),
        patch.object(reading, "connect", connect),
    ):
        yield sessions
    sessions.end()
