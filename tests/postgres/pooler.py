"""A pooler with transaction pooling, like PgBouncer, but stricter with clients that rely on session state.

A client gets another session for each transaction, if there is one. All state that a transaction leaves in its
session is recorded, and discarded before the next one.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

SSL_OR_GSS = (80877103, 80877104)
CANCEL = 80877102

LEFT_BEHIND = """
SELECT 'prepared statement ' || name FROM pg_prepared_statements
UNION ALL SELECT 'setting ' || name FROM pg_settings WHERE source = 'session'
UNION ALL SELECT 'advisory lock' FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
UNION ALL SELECT 'listening to ' || channel FROM pg_listening_channels() AS channel
"""


class Message(NamedTuple):
    kind: bytes
    body: bytes

    def sent(self) -> bytes:
        return self.kind + struct.pack("!I", len(self.body) + 4) + self.body


class Wire:
    """One end of a connection that speaks PostgreSQL's protocol."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._stream = end.makefile("rb")

    def connect(self, path: str) -> None:
        self._end.connect(path)

    def message(self) -> Message:
        return Message(self._exactly(1), self.startup())

    def startup(self) -> bytes:
        """Read the first message of a connection, which has no kind."""
        (length,) = struct.unpack("!I", self._exactly(4))
        return self._exactly(length - 4)

    def _exactly(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) < count:
            raise ConnectionError
        return data

    def send(self, data: bytes) -> None:
        self._end.sendall(data)

    def cut(self) -> None:
        """End the connection; a thread that reads from it finds its end."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.cut()
        self._stream.close()
        self._end.close()


class Session:
    """A connection to the server."""

    def __init__(self, server: str, startup: bytes) -> None:
        self.wire = Wire(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        self.greeting: list[Message] = []
        try:
            self.wire.connect(server)
            self.wire.send(struct.pack("!I", len(startup) + 4) + startup)
            while not self.greeting or self.greeting[-1].kind != b"Z":
                self.greeting.append(self.wire.message())
                if self.greeting[-1].kind == b"E":
                    raise ConnectionError(self.greeting[-1].body)
        except BaseException:
            self.wire.close()
            raise

    def query(self, text: str) -> list[str]:
        """Return the first column of the result of a query."""
        self.wire.send(Message(b"Q", text.encode() + b"\0").sent())
        found: list[str] = []
        while (answer := self.wire.message()).kind != b"Z":
            if answer.kind == b"D":
                (length,) = struct.unpack("!i", answer.body[2:6])
                found.append(answer.body[6 : 6 + length].decode())
        return found


class Pool:
    """The sessions of one user of one database."""

    def __init__(self, server: str, startup: bytes, size: int) -> None:
        self._server = server
        self._startup = startup
        self._size = size
        self._idle: deque[Session] = deque()
        self._made = 0
        self._at_work: list[Session] = []
        self._changed = threading.Condition()
        self.left_behind: list[str] = []
        self.transactions = 0
        self.handed_on = 0

    def take(self, last: Session | None) -> Session:
        """Return a session that is not the last one, if possible."""
        with self._changed:
            while True:
                others = [session for session in self._idle if session is not last]
                if not others and self._made < self._size:
                    made = Session(self._server, self._startup)
                    self._made += 1
                    self._at_work.append(made)
                    return made
                if self._idle:
                    chosen = others[0] if others else self._idle[0]
                    self._idle.remove(chosen)
                    self._at_work.append(chosen)
                    self.transactions += 1
                    self.handed_on += chosen is not last
                    return chosen
                self._changed.wait()

    def give_back(self, session: Session) -> None:
        try:
            left_behind = session.query(LEFT_BEHIND)
            session.query("DISCARD ALL")
        except BaseException:
            self.throw_away(session)
            raise
        with self._changed:
            self.left_behind += left_behind
            self._at_work.remove(session)
            self._idle.append(session)
            self._changed.notify_all()

    def throw_away(self, session: Session) -> None:
        with self._changed:
            self._at_work.remove(session)
            session.wire.close()
            self._made -= 1
            self._changed.notify_all()

    def cut(self) -> None:
        """End the sessions at work; their clients find it out."""
        with self._changed:
            for session in self._at_work:
                session.wire.cut()

    def close(self) -> None:
        with self._changed:
            for session in self._idle:
                session.wire.close()


class Pooler:
    """Listens on a local port; ``address`` is the database behind it, without notifications."""

    def __init__(self, address: str, size: int = 2) -> None:
        parts = urlsplit(address)
        options = parse_qs(parts.query)
        self._server = str(Path(options["host"][0]) / ".s.PGSQL.5432")
        self._size = size
        self._pools: dict[bytes, Pool] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        query = f"?options={options['options'][0].replace('=', '%3D')}" if "options" in options else "?"
        self.plain_address = f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}{query}"
        self.address = f"{self.plain_address}&notifications=off"
        self._clients: list[tuple[Wire, threading.Thread]] = []
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, at: TracebackType | None
    ) -> None:
        # A thread that waits in accept() keeps the port open after close(), and would take one more connection.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listening.join()
        self._listener.close()
        for client, _ in self._clients:
            client.cut()
        for pool in self._pools.values():
            pool.cut()
        for _, serving in self._clients:
            serving.join()
        for pool in self._pools.values():
            pool.close()

    @property
    def left_behind(self) -> list[str]:
        """Return the state that transactions left in sessions."""
        return [what for pool in self._pools.values() for what in pool.left_behind]

    @property
    def handed_on(self) -> float:
        """Return the share of transactions that did not use the same session as the one before."""
        pools = self._pools.values()
        return sum(pool.handed_on for pool in pools) / max(1, sum(pool.transactions for pool in pools))

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                wire = Wire(client)
                serving = threading.Thread(target=self._serve, args=(wire,), daemon=True)
                self._clients.append((wire, serving))
                serving.start()

    def _serve(self, client: Wire) -> None:
        with contextlib.suppress(OSError, ValueError):
            startup = client.startup()
            while struct.unpack("!I", startup[:4])[0] in SSL_OR_GSS:
                client.send(b"N")
                startup = client.startup()
            if struct.unpack("!I", startup[:4])[0] != CANCEL:
                pool = self._pools.setdefault(startup, Pool(self._server, startup, self._size))
                self._hand_out(client, pool)
        client.close()

    def _hand_out(self, client: Wire, pool: Pool) -> None:
        session: Session | None = pool.take(None)
        assert session is not None
        last, greeting = session, session.greeting
        pool.give_back(session)
        session = None
        try:
            client.send(b"".join(message.sent() for message in greeting))
            while (asked := client.message()).kind != b"X":
                if session is None:
                    session = pool.take(last)
                session.wire.send(asked.sent())
                if asked.kind in (b"Q", b"S") and self._answer(client, session) == b"I":
                    last = session
                    session = None
                    pool.give_back(last)
        finally:
            if session is not None:
                pool.throw_away(session)

    def _answer(self, client: Wire, session: Session) -> bytes:
        """Forward the server's messages until it is ready again; return the status of the transaction."""
        while True:
            said = session.wire.message()
            client.send(said.sent())
            if said.kind == b"Z":
                return said.body
