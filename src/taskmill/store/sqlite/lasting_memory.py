"""A store in memory that keeps its data when it is closed and opened again."""

from __future__ import annotations

from typing import Self

from taskmill.core.ports import Clock, DispatchRight
from taskmill.errors import AlreadyRunning
from taskmill.store.sqlite.connection import MEMORY, Connection
from taskmill.store.sqlite.store import SqliteStore


class LastingMemory(SqliteStore):
    """A store in memory whose data lives as long as the object, not only until it is closed."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(MEMORY, "full", clock)
        self._kept: Connection | None = None
        self._right = _Right()

    def _prepared(self) -> Connection:
        if self._kept is None:
            self._kept = super()._prepared()
        return self._kept

    async def close(self) -> None:
        await self._writer.close()

    async def acquire_dispatch(self) -> DispatchRight:
        return self._right.acquired()


class _Right:
    """The right to dispatch this store; as with a file, it is held until the last handler has ended."""

    def __init__(self) -> None:
        self._is_held = False

    def acquired(self) -> Self:
        if self._is_held:
            raise AlreadyRunning("a handler of an earlier run has not ended yet; this one can run once it has")
        self._is_held = True
        return self

    def release(self) -> None:
        self._is_held = False

    def linger(self) -> None:
        return

    def inheritable(self) -> tuple[int, ...]:
        return ()
