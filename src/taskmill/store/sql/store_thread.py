"""The thread that runs the slow work of a store, such as a large transaction, beside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from taskmill.errors import StoreError

if TYPE_CHECKING:
    from taskmill.core.ports import Clock

T = TypeVar("T")
Done = Callable[[Any, BaseException | None], None]
_Work = tuple[Callable[[], Any], Done, asyncio.AbstractEventLoop, bool]
_Ended = tuple[Done, Any, BaseException | None]

HAND_OVER_PATIENCE = 0.001
"""The longest time, in seconds, that the event loop waits until its thread begins."""


class StoreThread:
    """A daemon thread that runs one function at a time for the event loop; it starts with its first call at the latest.

    It reports work to the clock, so that a manual clock waits for it.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._unfinished = 0
        self._begun: queue.SimpleQueue[None] = queue.SimpleQueue()
        """Has an item when the thread has begun with a function for which the loop waits."""
        self._ended: deque[_Ended] = deque()
        """Functions that have ended, for which ``done`` is not yet called."""
        self._wakes_loop = True
        """True if the end of a function wakes the event loop."""
        self._fetching: asyncio.TimerHandle | None = None
        """Fetches a result for which nothing else wakes the loop."""

    @property
    def is_idle(self) -> bool:
        """True if no function runs or waits."""
        return not self._unfinished

    def begin(self) -> None:
        """Start the thread now. A store starts its threads when it opens, so that none is missing later."""
        thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as refused:
            raise StoreError(f"the store cannot be opened: {refused}; allow this process more threads") from refused
        self._thread = thread

    def start(self, function: Callable[[], Any], done: Done, *, hand_over: bool = False, patience: float = 0.0) -> None:
        """Run ``function`` in the thread, then call ``done`` on the loop with its result or exception.

        With ``hand_over``, wait a moment until the thread begins. Otherwise it waits for the GIL while the loop is
        busy, which may take longer than the function. With ``patience``, the end of the function does not wake the
        loop: ``done`` is called by :meth:`fetch`, at the latest after so many seconds.
        """
        if self._thread is None:
            self.begin()
        self._clock.work_begins()
        self._unfinished += 1
        self._wakes_loop = not patience
        if patience:
            self._fetching = asyncio.get_running_loop().call_later(patience, self.fetch)
        if hand_over and not self._begun.empty():
            # An earlier call did not wait long enough.
            self._begun.get()
        self._work.put((function, done, asyncio.get_running_loop(), hand_over))
        if hand_over:
            with contextlib.suppress(queue.Empty):
                self._begun.get(timeout=HAND_OVER_PATIENCE)

    async def run(self, function: Callable[[], T]) -> T:
        """Run ``function`` in the thread and return its result. Cancelling the caller does not stop the function."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(result: Any, wrong: BaseException | None) -> None:
            if wrong is None:
                succeed(answer, result)
            else:
                fail(answer, wrong)

        self.start(function, done)
        return await answer

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            self._run(*work)

    def _run(self, function: Callable[[], Any], done: Done, loop: asyncio.AbstractEventLoop, hand_over: bool) -> None:
        if hand_over:
            self._begun.put(None)
        try:
            result, wrong = function(), None
        except BaseException as raised:  # noqa: BLE001 - it is passed to the caller
            result, wrong = None, raised
        self._ended.append((done, result, wrong))
        if self._wakes_loop:
            # The loop may have been closed in the meantime.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._report)

    def fetch(self) -> None:
        """Call ``done`` if the function was started with ``patience`` and has ended; if not, its end wakes the loop."""
        if self._fetching is not None:
            self._fetching.cancel()
            self._fetching = None
            # In this order: the thread appends the result before it asks whether to wake the loop.
            self._wakes_loop = True
            self._report()

    def _report(self) -> None:
        while self._ended:
            done, result, wrong = self._ended.popleft()
            self._clock.work_ends()
            self._unfinished -= 1
            done(result, wrong)

    async def close(self) -> None:
        thread = self._thread
        if thread is not None:
            finished = asyncio.Event()
            self.start(lambda: None, lambda _result, _wrong: finished.set())
            self._work.put(None)
            self._thread = None
            await finished.wait()
            thread.join()


def succeed(answer: asyncio.Future[T], result: T) -> None:
    """Give a caller its result, unless it was cancelled."""
    if not answer.done():
        answer.set_result(result)


def fail(answer: asyncio.Future[Any], wrong: BaseException) -> None:
    """Give a caller the error, unless it was cancelled."""
    if not answer.done():
        answer.set_exception(wrong)
