"""Serving the page from this process with uvicorn, for ``taskmill web`` and ``taskmill demo --web``."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncGenerator, Generator, Iterable
from urllib.parse import quote

import uvicorn

from taskmill import ConfigError, Scheduler
from taskmill.web.application import Dashboard
from taskmill.web.guards import LOOPBACK_NAMES, is_loopback

STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE_SECONDS = 2
MOST_CONNECTIONS = 500
BACKLOG = 128


class PageServer(uvicorn.Server):
    """A server that leaves signals to the program around it."""

    def __init__(self, page: Dashboard, listening: socket.socket, host: str) -> None:
        super().__init__(
            uvicorn.Config(
                page,
                log_level="warning",
                access_log=False,
                lifespan="off",
                server_header=False,
                proxy_headers=False,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_graceful_shutdown=GRACE_SECONDS,
                ws="none",
            )
        )
        self._page = page
        self._listening = listening
        port = listening.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{port}/"
        """Where the page is."""

    @property
    def link(self) -> str:
        """The address with the token in its fragment, which browsers never send."""
        return self.address if self._page.token is None else f"{self.address}#token={quote(self._page.token, safe='')}"

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals of the process alone."""
        yield

    def end(self) -> None:
        """Stop serving: end the event streams, then let other responses finish."""
        self._page.end_streams()
        self.should_exit = True

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[PageServer, None]:
        """Serve in the background."""
        serving = asyncio.get_running_loop().create_task(self.serve([self._listening]), name="taskmill-web")
        try:
            yield self
        finally:
            self.end()
            await serving

    async def stopped(self) -> None:
        """Wait for SIGINT or SIGTERM."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        for number in STOPPING_SIGNALS:
            loop.add_signal_handler(number, ended.set)
        try:
            await ended.wait()
        finally:
            for number in STOPPING_SIGNALS:
                loop.remove_signal_handler(number)


def page_server(
    scheduler: Scheduler,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    read_only: bool = False,
    allowed_hosts: Iterable[str] = (),
) -> PageServer:
    """Return a server of the page that listens on ``host`` and ``port`` already, by default on a usual or a free port.

    It accepts the names of this machine and ``allowed_hosts`` in the Host header. On an address that other machines can
    reach, it needs a ``token``.
    """
    if not is_loopback(host) and token is None:
        raise ConfigError(f"{host} can be reached from other machines; give a token of your own (--token)")
    page = Dashboard(
        scheduler,
        read_only=read_only,
        authorize=None,
        redact=None,
        allowed_hosts=[*LOOPBACK_NAMES, *allowed_hosts],
        token=token,
    )
    return PageServer(page, _listening(host, port), host)


USUAL_PORT = 8040


def _listening(host: str, port: int | None) -> socket.socket:
    for attempt in (USUAL_PORT, 0) if port is None else (port,):
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listening = socket.create_server((host, attempt), family=family, backlog=BACKLOG)
        except OSError as wrong:
            if attempt == USUAL_PORT and port is None:
                continue
            raise ConfigError(f"cannot listen on {host} port {attempt}: {wrong.strerror or wrong}") from wrong
        # Connections inherit it. Without it, the body of an answer waits for the acknowledgement of its headers, 40 ms.
        # asyncio sets it only for sockets that name their protocol, and those of create_server do not.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    raise AssertionError("the last attempt returns or raises")
