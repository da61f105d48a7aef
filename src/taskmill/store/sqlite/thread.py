"""A daemon thread that runs one function at a time for the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from taskmill.ports import Clock

T = TypeVar("T")


class StoreThread:
    """Starts with its first work; the manual clock is told while it works."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, function: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            try:
                result = function()
            except BaseException as wrong:  # noqa: BLE001 - it is raised where it was asked for
                tell(_fail, wrong)
            else:
                tell(_succeed, result)

        def tell(how: Callable[[asyncio.Future[T], Any], None], what: Any) -> None:
            _tell(loop, finish, how, what)

        def finish(how: Callable[[asyncio.Future[T], Any], None], what: Any) -> None:
            self._clock.work_ends()
            how(answer, what)

        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        self._clock.work_begins()
        self._work.put(work)
        return await _whole(answer)

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


async def _whole(answer: asyncio.Future[T]) -> T:
    """Wait for the thread even when cancelled: its work cannot be taken back half-way."""
    cancelled = False
    while True:
        try:
            result = await asyncio.shield(answer)
        except asyncio.CancelledError:
            if answer.done():
                raise
            cancelled = True
            continue
        if cancelled:
            raise asyncio.CancelledError
        return result


def _succeed(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[Any], wrong: Any) -> None:
    if not answer.done():
        answer.set_exception(wrong)


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *args: Any) -> None:
    # A loop that was closed under us has nobody left to be told.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *args)
