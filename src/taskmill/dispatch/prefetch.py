"""Prefetch: claim tasks before a slot is free, so that the next one starts the moment a handler ends.

A turn costs about the same whether it claims one task or fifty. With handlers of a fraction of a millisecond, slots
would be empty most of the time. So a turn claims, beyond the free slots, as many tasks as keep the slots busy for
:data:`HORIZON`, judged by how long the last tasks of the type took. Tasks of a type are not prefetched if its handlers
take much longer than that (:data:`LONGEST`), or if it has not run yet.

To users, a prefetched task still waits: it has no start, it uses no slot, and a more urgent task starts before it. It
begins in the order of the queue. If it cannot begin soon, or if a rule changes, it returns to the queue as if it had
never been claimed. Tasks to which a limit applies are not prefetched, and neither are those that :file:`fragments.sql`
excludes (``may_prefetch``), so every limit stays exact (docs/decisions/0033). A task that preempts a running one is not
prefetched either: it would wait for a slot first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from taskmill.model.task import Claimed

HORIZON = 0.005
"""Seconds of work to claim ahead. A commit to a file takes a tenth of that."""
CLUSTER_HORIZON = 0.020
"""The same for a server: a round trip to it takes longer."""
LONGEST = 1.5
"""How long, in horizons, tasks may take to be prefetched."""
LEAST_COST = 0.00002
"""The least seconds that a task is expected to take. It bounds the number of prefetched tasks: 250 on a file."""
ROUNDING = 1e-6
"""The part of the room that is added, so that inexact sums do not cost the last task its place."""
UNKNOWN = 1.0
"""The assumed duration, in seconds, of a task that cannot be prefetched."""
LONG = 0.001
"""The seconds from which a task takes long: much longer than an iteration of the event loop."""
FORGETTING = 0.1
"""How much one shorter run lowers the estimate for its type. A longer run raises it at once."""


Rank = tuple[int, int, int]


class Running(NamedTuple):
    """A running task."""

    type: str
    seconds: float
    """Since it began."""
    effective: int


def rank(task: Claimed) -> Rank:
    """Return the position of a task in the queue; the lowest starts first."""
    return task.effective, task.queued_at, task.place_id


def _in_order(tasks: Sequence[Claimed]) -> list[Claimed]:
    """Order tasks that were picked in this order: the most urgent first, and equally urgent groups take turns.

    Inside a group the longest waiting task comes first, even if it was picked later.
    """
    ranked: dict[str, list[Claimed]] = {}
    for task in sorted(tasks, key=rank, reverse=True):
        ranked.setdefault(task.group, []).append(task)
    return [ranked[task.group].pop() for task in sorted(tasks, key=lambda task: task.effective)]


class WaitingFront(NamedTuple):
    """The waiting tasks that prefetched ones must not overtake."""

    effective: int | None = None
    """The effective priority of the most urgent one; None if no task that may start is waiting."""
    ranks: Mapping[str, Rank] = {}
    """By group: the rank of the first one."""

    def comes_before(self, task: Claimed) -> bool:
        """True if a waiting task starts before this prefetched one."""
        if self.effective is not None and self.effective < task.effective:
            return True
        return (first := self.ranks.get(task.group)) is not None and first < rank(task)

    def plus(self, tasks: Iterable[tuple[str, Rank]]) -> WaitingFront:
        """Return the same with more waiting tasks, each given by its group and its rank."""
        effective, ranks = self.effective, dict(self.ranks)
        for group, added in tasks:
            effective = added[0] if effective is None else min(effective, added[0])
            ranks[group] = min(added, ranks.get(group, added))
        return WaitingFront(effective, ranks)


NOTHING_WAITS = WaitingFront()


class Room:
    """How much more a turn may prefetch."""

    def __init__(self, durations: dict[str, float], slots: int, seconds: float, least_urgent: int) -> None:
        self.least_urgent = least_urgent
        """The effective priority of the least urgent running task."""
        self._durations = durations
        self._slots = slots
        self._horizon = seconds
        self._left = seconds * (1 + ROUNDING)
        self._costs: dict[str, float] = {}
        self._longest = LONGEST * seconds
        """The longest duration, in seconds, of tasks that are prefetched."""

    def most(self, type: str) -> int:
        """Return how many tasks of a type there is room for."""
        return max(int(self._left / self._cost(type)), 0)

    def take(self, type: str) -> bool:
        """Take room for a task of a type; return False if there is none."""
        cost = self._cost(type)
        if cost > self._left:
            return False
        self._left -= cost
        return True

    def _cost(self, type: str) -> float:
        cost = self._costs.get(type)
        if cost is None:
            cost = self._costs[type] = self._cost_of(self._durations.get(type, UNKNOWN))
        return cost

    def _cost_of(self, seconds: float) -> float:
        if seconds > self._longest:
            return math.inf
        # Slots often become free together. If each has its next task then, none of them waits for a turn.
        for_each_slot = math.ceil(self._horizon / max(seconds, LEAST_COST))
        return max(self._horizon / for_each_slot / self._slots, LEAST_COST)


class Prefetch:
    """The prefetched tasks that have not begun, and how many there should be."""

    def __init__(self, *, in_cluster: bool) -> None:
        self._horizon = CLUSTER_HORIZON if in_cluster else HORIZON
        self._durations: dict[str, float] = {}
        """Estimated seconds per attempt, by task type."""
        self.tasks: list[Claimed] = []
        """In the order in which they begin."""
        self.is_held = False
        """True if none of them begins before the next turn."""
        self.first_waiting = NOTHING_WAITS
        self._claimed_at: dict[int, float] = {}
        """When each of them was claimed, on the monotonic clock."""
        self._begun: dict[int, tuple[float, Claimed]] = {}
        """Tasks that have begun although the store does not know it yet, in the order in which they began."""
        self._before = 0
        """The number of tasks before the last claims."""
        self.full = 0
        """The number of tasks with the last claims, those that began during the turn included."""

    @property
    def has_half(self) -> bool:
        """True if more than half of the tasks are left."""
        return len(self.tasks) > self.full // 2

    @property
    def may_begin(self) -> bool:
        """True if there are tasks, and no known waiting task starts before the first of them."""
        return bool(self.tasks) and not self.is_held and not self.first_waiting.comes_before(self.tasks[0])

    def ended(self, task: Claimed, seconds: float) -> None:
        """Learn from an attempt that has ended how long tasks of its type take."""
        self._begun.pop(task.id, None)
        before = self._durations.get(task.type, 0.0)
        self._durations[task.type] = seconds if seconds >= before else before + FORGETTING * (seconds - before)

    def takes_long(self, type: str) -> bool:
        """True if tasks of a type take at least a millisecond."""
        return self._durations.get(type, 0.0) >= LONG

    def refused(self, types: Iterable[str]) -> None:
        """Prefetch no tasks of these types for a while."""
        for type in types:
            self._durations[type] = UNKNOWN

    def room(self, free: int, running: Collection[Running]) -> Room | None:
        """Return the room beyond the tasks that are prefetched already.

        Only slots that are free, or will be soon, are considered.
        """
        longest = LONGEST * self._horizon
        self._before = len(self.tasks)
        if self.has_half or not any(seconds <= longest for seconds in self._durations.values()):
            return None
        soon = free + sum(
            each.seconds < longest and self._durations.get(each.type, UNKNOWN) <= longest for each in running
        )
        if not soon:
            return None
        least_urgent = max((each.effective for each in running), default=0)
        room = Room(self._durations, soon, self._horizon, least_urgent)
        return room if all(room.take(task.type) for task in self.tasks) else None

    def add(self, tasks: Iterable[Claimed], now: float) -> None:
        """Add tasks that were claimed at ``now``."""
        left = len(self.tasks)
        for task in tasks:
            self.tasks.append(task)
            self._claimed_at[task.id] = now
        self.full = max(self._before, left) + len(self.tasks) - left
        self.tasks[:] = _in_order(self.tasks)

    def begin(self, now: float) -> Claimed:
        """Remove and return the task that begins next."""
        task = self.tasks.pop(0)
        del self._claimed_at[task.id]
        self._begun[task.id] = now, task
        return task

    def remove(self, id: int) -> Claimed | None:
        """Remove a task; return None if it is not among them."""
        if self._claimed_at.pop(id, None) is None:
            return None
        at = next(at for at, task in enumerate(self.tasks) if task.id == id)
        return self.tasks.pop(at)

    def take_all(self) -> list[Claimed]:
        """Remove and return all tasks."""
        tasks = self.tasks.copy()
        self.tasks.clear()
        self._claimed_at.clear()
        return tasks

    def is_overdue(self, now: float) -> bool:
        """True if tasks should have begun by now, and so return to the queue."""
        return bool(self._claimed_at) and min(self._claimed_at.values()) + 2 * self._horizon <= now

    def to_store(self, now: float = math.inf) -> list[tuple[int, int, int]]:
        """Return ``(id, attempt, began at)`` of running tasks whose beginning has to be stored.

        A task that began just now is likely to end soon, and then its beginning is stored with its end. Without
        ``now``, all are returned.
        """
        return [
            (task.id, task.attempt, task.started_at)
            for began, task in self._begun.values()
            if began + 2 * self._horizon <= now
        ]

    def stored(self, begun: Iterable[tuple[int, int, int]]) -> None:
        """Note that the store knows of these beginnings."""
        for id, _, _ in begun:
            if (known := self._begun.pop(id, None)) is not None:
                known[1].prefetched = 0

    def next_at(self) -> float | None:
        """Return when a turn is needed, on the monotonic clock: to return tasks, or to store that some have begun."""
        began = (began for began, _ in self._begun.values())
        first = min((*self._claimed_at.values(), *began), default=None)
        return None if first is None else first + 2 * self._horizon
