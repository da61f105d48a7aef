"""``Reader``: look at a queue and change nothing, not even by opening it."""

from __future__ import annotations

from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Self

from taskmill.core.clock import SystemClock
from taskmill.core.process import this_process
from taskmill.store import opening
from taskmill.verbs.browsing import BrowseMethods

if TYPE_CHECKING:
    from taskmill.core.ports import Clock
    from taskmill.store.opening import AnyReader  # noqa: F401 - named in quotes

__all__ = ["Reader"]


class Reader(BrowseMethods["AnyReader"]):
    """A store that is open for reading only: ``async with Reader("tasks.db") as queue:``.

    It has the reading methods of ``Scheduler``. It creates and migrates nothing and refuses an older schema; a file and
    its write-ahead log keep every byte. It may be open beside any number of schedulers.
    """

    def __init__(self, store: str | PathLike[str], *, clock: Clock | None = None) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        self._store = opening.open_reader(store, self._clock)

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
