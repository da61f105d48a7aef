"""A priority queue of named moments, earliest first.

Checking an agenda on which nothing is due takes constant time.
"""

from __future__ import annotations

import heapq


class Agenda:
    """Holds at most one moment per name; putting a name again replaces its moment."""

    __slots__ = ("_heap", "_moments")

    def __init__(self) -> None:
        self._moments: dict[str, int] = {}
        # Entries that differ from `_moments` are stale; they are dropped when they reach the top.
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._moments)

    def __contains__(self, name: str) -> bool:
        return name in self._moments

    def put(self, name: str, moment: int | None) -> None:
        """Set the moment of a name; ``None`` removes the name."""
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
        """Return the earliest moment; ``None`` if the agenda is empty."""
        heap = self._heap
        while heap and self._moments.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now: int, most: int | None = None) -> list[str]:
        """Remove and return at most ``most`` names whose moment has come, earliest first."""
        taken: list[str] = []
        while len(taken) != most and (at := self.earliest()) is not None and at <= now:
            _, name = heapq.heappop(self._heap)
            del self._moments[name]
            taken.append(name)
        return taken
