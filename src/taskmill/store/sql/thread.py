"""A daemon thread that runs one function at a time for the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from taskmill.core.ports import Clock

T = TypeVar("T")
Done = Callable[[Any, BaseException | None], None]


class StoreThread:
    """A thread that starts with its first call. It reports work to the clock, so that a manual clock waits for it."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, function: Callable[[], Any], done: Done) -> None:
        """Run ``function`` in the thread, then call ``done`` on the loop with its result or exception."""
        loop = asyncio.get_running_loop()

        def work() -> None:
            try:
                result, wrong = function(), None
            except BaseException as raised:  # noqa: BLE001 - it is passed to the caller
                result, wrong = None, raised
            _tell(loop, finish, result, wrong)

        def finish(result: Any, wrong: BaseException | None) -> None:
            self._clock.work_ends()
            done(result, wrong)

        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        self._clock.work_begins()
        self._work.put(work)

    async def run(self, function: Callable[[], T]) -> T:
        """Run ``function`` in the thread and return its result. Cancelling the caller does not stop the function."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(result: Any, wrong: BaseException | None) -> None:
            if not answer.done():
                if wrong is None:
                    answer.set_result(result)
                else:
                    answer.set_exception(wrong)

        self.start(function, done)
        return await answer

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            finished = asyncio.Event()
            loop = asyncio.get_running_loop()
            self._work.put(lambda: _tell(loop, finished.set))
            self._work.put(None)
            await finished.wait()
            thread.join()


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *args: Any) -> None:
    # The loop may have been closed in the meantime.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *args)
