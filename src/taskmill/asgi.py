"""taskmill in an ASGI application: ``FastAPI(lifespan=lifespan(scheduler))``.

No web framework is imported. The lifespan works in every worker process of a server: one of them dispatches an SQLite
file and the others stand by; on PostgreSQL all of them dispatch.

A server such as uvicorn first waits for open responses, and only then shuts the application down. A response
that follows ``scheduler.events()`` never ends by itself, so Ctrl-C would wait for the browser. The lifespan therefore
notices the signals that stop the server, calls the server's own handlers, and ends all event streams at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager
from types import FrameType

from taskmill.errors import ConfigError
from taskmill.model.arguments import check_arguments
from taskmill.scheduler import Scheduler
from taskmill.verbs.components import checked_flag

__all__ = ["lifespan"]

STOPPING_SIGNALS = ("SIGINT", "SIGTERM", "SIGQUIT", "SIGBREAK")
"""The signals that stop servers; not every system has each of them."""


@check_arguments
def lifespan(scheduler: Scheduler, *, standby: bool = True) -> Callable[[object], AbstractAsyncContextManager[None]]:
    """Return a lifespan for an ASGI framework: it opens the scheduler and dispatches while the application runs.

    On shutdown it ends event streams first, then lets running tasks finish for ``shutdown_grace``. Without ``standby``
    a second worker process on one SQLite file fails with ``AlreadyRunning``.
    """
    if not isinstance(scheduler, Scheduler):
        kind = type(scheduler)
        raise ConfigError(f"scheduler must be a taskmill.Scheduler, not {kind.__module__}.{kind.__qualname__}")
    checked_flag(standby, "standby")

    @contextlib.asynccontextmanager
    async def run_with(application: object) -> AsyncGenerator[None, None]:  # noqa: ARG001 - frameworks pass it
        async with scheduler, scheduler.running(standby=standby):
            with _called_on_shutdown(scheduler._end_events):
                try:
                    yield
                finally:
                    scheduler._end_events()

    return run_with


@contextlib.contextmanager
def _called_on_shutdown(callback: Callable[[], None]) -> Generator[None, None, None]:
    """Call ``callback`` on the event loop when a signal that the server handles arrives. The server's handler runs too.

    A signal without a handler is left alone. Handlers that were added with ``loop.add_signal_handler`` still run,
    because the loop receives signals through a file descriptor.
    """
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread receives signals; the server has to be stopped in another way.
        yield
        return
    loop = asyncio.get_running_loop()
    is_active = True
    before = {
        number: handler
        for name in STOPPING_SIGNALS
        if (number := getattr(signal, name, None)) is not None and callable(handler := signal.getsignal(number))
    }

    def received(number: int, frame: FrameType | None) -> None:
        if is_active:
            loop.call_soon_threadsafe(callback)
        before[number](number, frame)

    for number in before:
        signal.signal(number, received)
    try:
        yield
    finally:
        is_active = False
        for number, handler in before.items():
            if signal.getsignal(number) is received:
                signal.signal(number, handler)
