"""Tasks lend their urgency to the tasks they wait for, and take it back when they end before those.

This is what :mod:`taskmill.store.sql.dependencies` does in a store. What is lent at the beginning is in the queue that
was read.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

import msgspec

from taskmill.model.queue_state import QueuedTask


class Lending:
    """Which tasks wait for which. It is shared by all samples, and never changed."""

    def __init__(self, waits_for: Iterable[tuple[int, int]]) -> None:
        self._on: dict[int, list[int]] = {}
        self._by: dict[int, list[int]] = {}
        for waiting, on in waits_for:
            self._on.setdefault(waiting, []).append(on)
            self._by.setdefault(on, []).append(waiting)

    def after(self, ended: int, task: Callable[[int], QueuedTask], ends: Container[int]) -> Iterator[QueuedTask]:
        """Yield the tasks that are less urgent after the end of a task; the caller stores each before the next."""
        checked = [*self._on.get(ended, ())]
        while checked:
            on = task(checked.pop())
            lent = [task(id).urgency for id in self._by[on.id] if id not in ends]
            urgency = min([on.priority, *lent])
            if on.id not in ends and urgency != on.urgency:
                yield msgspec.structs.replace(on, urgency=urgency)
                checked += self._on.get(on.id, ())
