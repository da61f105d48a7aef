"""Warn of an ``async def`` handler that blocks the event loop: nothing else runs there while it computes or sleeps.

While handlers run on the loop, a thread checks it eight times a second; otherwise that thread sleeps. Each step of a
handler adds one to :attr:`LoopWatch.steps`. If several checks in a row find the same number, and a handler inside a
step, that step has lasted since the first of these checks.

The times are real, also under a manual clock. C code that keeps the interpreter lock stops this thread as well, so a
handler that blocks there is not reported.
"""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Coroutine
from types import CodeType, FrameType
from typing import Any, Protocol

from taskmill.core.logs import AttemptFields, about, logger

LOOK_INTERVAL = 0.125
"""Seconds between two checks."""
LOOKS = 5
"""How many checks must find the same step: the step has then lasted for at least half a second."""


class Watched(Protocol):
    """A handler on the event loop."""

    coroutine: Coroutine[Any, Any, Any]
    type: str

    @property
    def fields(self) -> AttemptFields: ...


class LoopWatch:
    """Watches the handlers on the event loop of the thread that creates it."""

    def __init__(self) -> None:
        self.steps = 0
        """How many steps handlers have begun."""
        self.current: Watched | None = None
        """The handler that is inside a step now."""
        self._alive = 0
        self._loop_thread = threading.get_ident()
        self._thread: threading.Thread | None = None
        self._is_asleep = False
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._warned: set[tuple[str, int, CodeType]] = set()

    def begin(self) -> None:
        """Count a handler that begins on the loop."""
        self._alive += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="taskmill-loop-watch", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as wrong:
                logger.warning("a handler that blocks the event loop will not be reported: %s", wrong)
        elif self._is_asleep:
            self._wake.set()

    def end(self) -> None:
        """Count a handler that has ended."""
        self._alive -= 1

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._wake.set()

    def _watch(self) -> None:
        seen = looks = 0
        while not self._closed.wait(LOOK_INTERVAL):
            if not self._alive:
                self._sleep()
                looks = 0
            elif self.steps != seen:
                seen, looks = self.steps, 1
            else:
                looks += 1
                if looks == LOOKS:
                    self._look(seen)

    def _sleep(self) -> None:
        """Sleep until a handler begins."""
        self._is_asleep = True
        # A handler that began before the flag was set is already counted in `_alive`.
        while not self._alive and not self._closed.is_set():
            self._wake.wait()
            self._wake.clear()
        self._is_asleep = False

    def _look(self, step: int) -> None:
        """Warn if a handler is inside this step, once per place."""
        current, innermost = self.current, sys._current_frames().get(self._loop_thread)
        frame: FrameType | None = getattr(current and current.coroutine, "cr_frame", None)
        if current is None or frame is None or innermost is None or self.steps != step:
            return
        # With middleware, the outermost frame is not that of the handler, so the innermost code identifies the place
        # too.
        place = current.type, frame.f_lineno, innermost.f_code
        if place in self._warned:
            return
        self._warned.add(place)
        logger.warning(
            "task %d (%s) has blocked the event loop for more than half a second at %s; use an awaitable call there, "
            "asyncio.to_thread, or a def handler, which runs in a thread",
            current.fields.id,
            current.type,
            _line(frame) if innermost is frame else f"{_line(frame)}, in {_line(innermost)}",
            extra=about(current.fields),
        )


def _line(frame: FrameType) -> str:
    """Return the file, line, function and source of a frame, such as ``app.py:12 in resize: time.sleep(1)``."""
    file, number = frame.f_code.co_filename, frame.f_lineno
    source = linecache.getline(file, number, frame.f_globals).strip()
    return f"{file}:{number} in {frame.f_code.co_name}" + (f": {source}" if source else "")
