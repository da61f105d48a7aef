"""Who is next: the moments of many tasks, earliest first.

A look at an agenda of which nothing is due costs the same however many tasks are on it.
"""

from __future__ import annotations

import heapq


class Agenda:
    """Per name at most one moment; a later one takes the place of an earlier."""

    __slots__ = ("_heap", "_moments")

    def __init__(self) -> None:
        self._moments: dict[str, int] = {}
        # Entries that are not what `_moments` says have been replaced; they are dropped when they come up.
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._moments)

    def __contains__(self, name: str) -> bool:
        return name in self._moments

    def put(self, name: str, moment: int | None) -> None:
        """``None`` takes the name off."""
        if moment is None:
            self._moments.pop(name, None)
            return
        if self._moments.get(name) == moment:
            return
        self._moments[name] = moment
        heapq.heappush(self._heap, (moment, name))
        if len(self._heap) > 2 * len(self._moments) + 64:
            self._heap = [(at, who) for who, at in self._moments.items()]
            heapq.heapify(self._heap)

    def earliest(self) -> int | None:
        """The earliest moment of all."""
        heap = self._heap
        while heap and self._moments.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now: int, most: int | None = None) -> list[str]:
        """Take off and return the names whose moment has come, earliest first; at most so many."""
        taken: list[str] = []
        while len(taken) != most and (at := self.earliest()) is not None and at <= now:
            _, name = heapq.heappop(self._heap)
            del self._moments[name]
            taken.append(name)
        return taken
