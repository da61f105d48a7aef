"""A network between nodes and the server that can be cut, or fall silent: bytes go in and nothing comes out."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit


class Network:
    """Listens on a local port, and hands everything on to the Unix socket of a server."""

    def __init__(self, address: str, *, tells_of_resets: bool = False) -> None:
        self._tells_of_resets = tells_of_resets
        parts = urlsplit(address)
        options = parse_qs(parts.query)
        self._server = str(Path(options["host"][0]) / ".s.PGSQL.5432")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._links: list[_Link] = []
        self.is_silent = False
        self.is_refusing = False
        """Whether new connections are ended at once."""
        port = self._listener.getsockname()[1]
        query = f"?options={options['options'][0].replace('=', '%3D')}" if "options" in options else ""
        self.address = f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}{query}"
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, at: TracebackType | None
    ) -> None:
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
                    self._links.append(self._link(client))
                except OSError:
                    # There is no server behind it right now.
                    client.close()

    def _link(self, client: socket.socket) -> _Link:
        return _Link(client, self._server, is_silent=self.is_silent, tells_of_resets=self._tells_of_resets)

    def fall_silent(self) -> None:
        """Whatever is sent is taken and goes nowhere, on every connection there is and on new ones."""
        self.is_silent = True
        for link in self._links:
            link.is_silent = True

    def refuse(self) -> None:
        """End every connection, and each new one at once."""
        self.is_refusing = True
        self.cut()

    def speak(self) -> None:
        """New connections work again; those that were silent stay so."""
        self.is_silent = self.is_refusing = False

    def cut(self) -> None:
        """End every connection."""
        links, self._links = self._links, []
        for link in links:
            link.end()


class _Link:
    def __init__(self, client: socket.socket, server: str, *, is_silent: bool, tells_of_resets: bool) -> None:
        self.is_silent = is_silent
        self._tells_of_resets = tells_of_resets
        self._client = client
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if not is_silent:
            try:
                self._server.connect(server)
            except OSError:
                self._server.close()
                raise
        for source, target in ((client, self._server), (self._server, client)):
            threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if not self.is_silent:
                    target.sendall(data)
        except OSError:
            # It was reset, as by a server that is killed.
            if not self._tells_of_resets:
                return
        if not self.is_silent:
            self.end()

    def end(self) -> None:
        for side in (self._client, self._server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()
