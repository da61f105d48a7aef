"""How the Context of a handler in a worker process reaches the scheduler: messages, few of them.

Reports are throttled here, before they cost anything: one is sent at once if none was sent lately, otherwise
the latest one is sent when its time has come, or when the handler ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future, wait

import msgspec

from taskmill.errors import InvalidState
from taskmill.execute.messages import FromWorker, Reported, SaveAnswer, SaveRequest
from taskmill.model.progress import ProgressReport

REPORT_INTERVAL = 0.05

# One sequence for all calls: the answer to a request of the last one must not pass for another's.
_save_numbers = itertools.count()
_encode = msgspec.json.Encoder().encode
_check = msgspec.json.Decoder(ProgressReport).decode


class ChildLink:
    """Serves one call. A thread that the handler left behind finds it closed."""

    stop_requested = False
    """Always: a worker process is not asked to stop, it is ended."""

    def __init__(self, send: Callable[[FromWorker], None]) -> None:
        self._send = send
        self._closed = False
        self._reporting = threading.Lock()
        self._held_back: ProgressReport | None = None
        self._next_report = 0.0
        self._timer: threading.Thread | None = None
        self._has_held_back = threading.Event()
        self._saves: dict[int, Future[None]] = {}

    def report(self, progress: ProgressReport) -> None:
        self._held_back = progress
        if time.monotonic() >= self._next_report:
            with self._reporting:
                self._send_held_back()
        elif not self._has_held_back.is_set():
            self._has_held_back.set()
            if self._timer is None:
                self._timer = threading.Thread(target=self._send_in_time, name="taskmill-progress", daemon=True)
                self._timer.start()

    def save(self, saved: str) -> Awaitable[None]:
        if self._closed:
            raise InvalidState("the attempt is over; nothing was saved")
        number, future = next(_save_numbers), Future[None]()
        self._saves[number] = future
        self._send(SaveRequest(number, saved))
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            future.result()
            return _Done()
        return asyncio.wrap_future(future)

    def answered(self, answer: SaveAnswer) -> None:
        future = self._saves.pop(answer.number, None)
        # A handler cancels it when it gives up waiting.
        if future is not None and future.set_running_or_notify_cancel():
            if answer.refused is None:
                future.set_result(None)
            else:
                future.set_exception(InvalidState(answer.refused))

    def close(self) -> None:
        """Send the last report, and wait for saves that nobody has waited for."""
        with self._reporting:
            self._send_held_back()
            self._closed = True
        self._has_held_back.set()
        wait(list(self._saves.values()))

    def _send_in_time(self) -> None:
        while not self._closed:
            self._has_held_back.wait()
            # Cleared before the report is taken, so that one made in between is looked for again.
            self._has_held_back.clear()
            time.sleep(max(0.0, self._next_report - time.monotonic()))
            with self._reporting:
                self._send_held_back()

    def _send_held_back(self) -> None:
        held_back, self._held_back = self._held_back, None
        if held_back is None or self._closed:
            return
        self._next_report = time.monotonic() + REPORT_INTERVAL
        # A report is a courtesy: one that holds something else than numbers and text fails no handler.
        with contextlib.suppress(TypeError, ValueError):
            _check(_encode(held_back))
            self._send(Reported(held_back))


class _Done:
    """May be awaited and need not be, unlike a coroutine, which warns when it is dropped."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()
