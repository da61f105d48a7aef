"""The agenda of a simulated run: its events, in the order of their instants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

Happens = Callable[[int], None]
"""Called with the id of the task that an event is about."""
RECURRING = -1
"""The id of events about recurring work in general; occurrences that a simulation makes have negative ids too."""


class RunAgenda:
    """The events to come; those of the same instant happen in the order in which they were added."""

    def __init__(self) -> None:
        self._events: list[tuple[int, int, Happens, int]] = []
        self._added = 0
        self._lasting = 0
        """How many events are not about recurring work."""

    def fill(self, events: Iterable[tuple[int, Happens, int]]) -> None:
        """Add many events, none of them about recurring work."""
        for at, what, id in events:
            self._added += 1
            self._lasting += 1
            self._events.append((at, self._added, what, id))
        heapify(self._events)

    def add(self, at: int, what: Happens, id: int) -> None:
        self._added += 1
        self._lasting += id >= 0
        heappush(self._events, (at, self._added, what, id))

    def happen(self, now: int) -> None:
        """Let everything happen that is due, what is added meanwhile included."""
        while self._events and self._events[0][0] <= now:
            _, _, what, id = heappop(self._events)
            self._lasting -= id >= 0
            what(id)

    @property
    def next_at(self) -> int | None:
        return self._events[0][0] if self._events else None

    @property
    def is_only_recurring(self) -> bool:
        """True if every event is about recurring work."""
        return not self._lasting
