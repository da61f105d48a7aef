"""Those who wait for tasks to end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable


class Waiters:
    """Wakes whoever waits for a task when its ending is committed."""

    def __init__(self) -> None:
        self._events: dict[int, asyncio.Event] = {}
        self._waiting: dict[int, int] = {}
        self.arrived = asyncio.Event()

    def expect(self, id: int) -> asyncio.Event:
        """An event that is set when the task has ended; pair it with :meth:`leave`."""
        self._waiting[id] = self._waiting.get(id, 0) + 1
        self.arrived.set()
        return self._events.setdefault(id, asyncio.Event())

    def leave(self, id: int) -> None:
        self._waiting[id] -= 1
        if not self._waiting[id]:
            del self._waiting[id], self._events[id]

    def ended(self, ids: Iterable[int]) -> None:
        if self._events:
            for id in ids:
                if (event := self._events.get(id)) is not None:
                    event.set()

    @property
    def are_there(self) -> bool:
        return bool(self._events)

    @property
    def ids(self) -> list[int]:
        return [id for id, event in self._events.items() if not event.is_set()]
