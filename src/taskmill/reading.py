"""``Reader``: read a queue and change nothing, not even by opening it; ``ask`` does so without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from taskmill.core.clock import SystemClock
from taskmill.core.process import this_process
from taskmill.store import opening
from taskmill.verbs.browsing import BrowseMethods

if TYPE_CHECKING:
    from taskmill.core.ports import Clock
    from taskmill.store.opening import AnyReader  # noqa: F401 - named in quotes

__all__ = ["Reader", "ask"]

T = TypeVar("T")


class Reader(BrowseMethods["AnyReader"]):
    """A store that is open for reading only: ``async with Reader("tasks.db") as queue:``.

    It has the reading methods of ``Scheduler``. It creates and migrates nothing and refuses an older schema; a file and
    its write-ahead log keep every byte. It may be open beside any number of schedulers.
    """

    def __init__(self, store: str | PathLike[str], *, clock: Clock | None = None, _in_thread: bool = True) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        self._store = opening.open_reader(store, self._clock, in_thread=_in_thread)

    def __repr__(self) -> str:
        return f"<Reader {self._store.name}>"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the store, which must exist and have the schema of this version."""
        await self._store.open()
        self._is_open, self._opened_in = True, this_process()

    async def close(self) -> None:
        """Close the store; do nothing if it is not open."""
        if self._is_open:
            self._is_open = False
            await self._store.close()


def ask(store: str | PathLike[str], question: Callable[[Reader], Coroutine[Any, Any, T]]) -> T:
    """Open a store for reading, return the answer to a question, and close it.

    This is for commands. It uses no event loop, because loading asyncio takes longer than a short read. So the
    question must wait for nothing but reads of the store; ``explain``, ``forecast`` and ``simulate`` also use threads.
    """

    async def answer() -> T:
        async with Reader(store, _in_thread=False) as reader:
            return await question(reader)

    asking = answer()
    try:
        asking.send(None)
    except StopIteration as ended:
        value: T = ended.value
        return value
    asking.close()
    raise RuntimeError("the question waits for an event loop, and there is none")
