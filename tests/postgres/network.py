"""A network between nodes and the server that can be cut, or go silent: it accepts bytes and forwards none."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import psycopg


class Network:
    """Listens on a local port, and forwards everything to a server, by the Unix socket or the port of its address."""

    def __init__(self, address: str, *, tells_of_resets: bool = False) -> None:
        self._tells_of_resets = tells_of_resets
        parts = urlsplit(address)
        options = parse_qs(parts.query)
        self._connect = _ways_to(parts.hostname, parts.port, options.pop("host", None))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._links: list[_Link] = []
        self.is_silent = False
        self.is_refusing = False
        """True if new connections are closed at once."""
        port = self._listener.getsockname()[1]
        query = urlencode(options, doseq=True, quote_via=quote)
        self.address = f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}?{query}"
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
        self.cut()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.is_refusing:
                    client.close()
                    continue
                try:
                    link = self._link(client)
                except OSError:
                    # The server is down right now.
                    client.close()
                else:
                    # Not before the link is made: cut() may have replaced the list meanwhile.
                    self._links.append(link)

    def _link(self, client: socket.socket) -> _Link:
        return _Link(client, self._connect, is_silent=self.is_silent, tells_of_resets=self._tells_of_resets)

    def fall_silent(self) -> None:
        """Accept all bytes and forward none, on every existing connection and on new ones."""
        self.is_silent = True
        for link in self._links:
            link.is_silent = True

    def silence(self, connection: psycopg.Connection[Any], after: bytes | None = None) -> None:
        """Silence only this connection, at once or after it has forwarded those bytes to the server."""
        with socket.socket(fileno=os.dup(connection.fileno())) as end:
            port = end.getsockname()[1]
        (link,) = [link for link in self._links if link.port == port]
        if after is None:
            link.is_silent = True
        else:
            link.last_words = after

    def refuse(self) -> None:
        """Close every connection, and each new one at once."""
        self.is_refusing = True
        self.cut()

    def speak(self) -> None:
        """Let new connections work again; silent ones stay silent."""
        self.is_silent = self.is_refusing = False

    def cut(self) -> None:
        """Close every connection."""
        links, self._links = self._links, []
        for link in links:
            link.end()


Connect = Callable[[], socket.socket]


def _ways_to(host: str | None, port: int | None, folder: list[str] | None) -> Connect:
    def by_socket() -> socket.socket:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            server.connect(str(Path(folder[0]) / ".s.PGSQL.5432") if folder else "")
        except OSError:
            server.close()
            raise
        return server

    return by_socket if folder else lambda: socket.create_connection((host, port))


class _Link:
    def __init__(self, client: socket.socket, connect: Connect, *, is_silent: bool, tells_of_resets: bool) -> None:
        self.is_silent = is_silent
        self._tells_of_resets = tells_of_resets
        self.last_words: bytes | None = None
        """The last bytes that are forwarded to the server; nothing follows in either direction."""
        self.port = client.getpeername()[1]
        self._client = client
        # A link that is silent from the start needs no connection to the server.
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) if is_silent else connect()
        for source, target in ((client, self._server), (self._server, client)):
            threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if self.is_silent:
                    continue
                self.is_silent = source is self._client and self.last_words is not None and self.last_words in data
                target.sendall(data)
        except OSError:
            # The connection was reset, as by a server that is killed.
            if not self._tells_of_resets:
                return
        if not self.is_silent:
            self.end()

    def end(self) -> None:
        for side in (self._client, self._server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()
